"""Defines names that the compiler of pipelines and their steps share."""

# Parameter from the step that looks at input files to the ExampleGen.
RESOLVED_INPUT = "resolved_input"
# End of an address that stands for no artifact: a step's input cannot be left out at
# run time.
NO_ARTIFACT = "no-artifact"
BLESSING = "tfx.ModelBlessing"  # Kubeflow's name of the artifact type
