"""The Sharder: examples as balanced, shuffled TFRecord shards, with their counts."""
