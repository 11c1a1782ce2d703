"""ExampleGens for local and remote data files: the examples hold exactly the values of the files."""
