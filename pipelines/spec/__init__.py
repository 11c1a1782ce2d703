"""The declarative pipeline: models of the YAML file, its loader and its checks."""
