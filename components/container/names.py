"""Words that the compiler of a pipeline and the steps of it have in common."""

RESOLVED_INPUT = "resolved_input"  # parameter between the step that looks at input files and the ExampleGen
NO_MODEL = "no-blessed-model"  # end of an address that stands for none: a step's input cannot be left out at run time
