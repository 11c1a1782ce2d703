"""Runs one step of a pipeline in its container.

`__main__.py` is the command of steps on Kubeflow Pipelines, `vertex.py` that of steps
on Vertex AI. `commands.py` does the work of the former, and `executor_io.py` reads and
writes Kubeflow's documents. The names here are shared by compiled pipelines and steps.
"""

# Parameter from the step that looks at input files to the ExampleGen.
RESOLVED_INPUT = "resolved_input"
# End of an address that stands for no artifact: a step's input cannot be left out at
# run time.
NO_ARTIFACT = "no-artifact"
BLESSING = "tfx.ModelBlessing"  # Kubeflow's name of the artifact type
