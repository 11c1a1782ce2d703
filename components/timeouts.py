"""Lists how long components, launchers and clients of services wait, in seconds.

What runs in a training process has its own: `trainer_module/timeouts.py`.
"""

# To connect to a service over HTTP, and for each answer: a connection that a proxy has
# dropped never ends by itself.
HTTP_SECONDS = (10.0, 60.0)
# For one answer of a service that runs jobs.
REQUEST_SECONDS = 60.0
# The same for a launcher that has to end: it sends two requests before it is killed.
LAST_REQUEST_SECONDS = 10.0
# Without an answer, until a request is given up.
ANSWER_SECONDS = 600.0
# Between the first two requests; each pause is twice as long as the one before.
RETRY_SECONDS = 3.0
# For an answer when a job is deleted or cancelled. Later, its chief ends by itself.
STOP_SECONDS = 120.0
# Between two looks at a run on a platform.
RUN_POLL_SECONDS = 10.0
# For storage at an address to work again.
STORAGE_SECONDS = 180.0
# For one answer of a metadata store, and for one that starts again: Kubeflow Pipelines
# does not try a failed step again.
METADATA_SECONDS = 30.0
METADATA_RETRY_SECONDS = 40.0

# How long a job stays after its end, for people to look at; at most, since Kubeflow
# deletes it with its workflow: from 2.17 on after an hour. The folder of a training
# stays as long after its lease was last renewed, for a retry of its step; and so does
# what a killed push has left.
KEPT_SECONDS = 24 * 3600
# Between two renewals of a training's lease by its step, and for the last one to end.
LEASE_RENEW_SECONDS = 60.0
LAST_RENEWAL_SECONDS = 5.0
# At most, between two starts of a training.
RESTART_SECONDS = 30.0

# Between two looks at what a cluster says about a job that does not run.
NEWS_SECONDS = 10.0
# By which our clock and the cluster's may differ.
CLOCK_SECONDS = 60
# Vertex AI sets the error of a failed job about a minute after its state. Source:
# https://cloud.google.com/vertex-ai/docs/training/understanding-training-service
VERTEX_ERROR_SECONDS = 180.0
# For a pod to end when GKE takes its spot machine away, unless the node pool says more.
# Source: https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms#termination-graceful-shutdown
SPOT_GRACE_SECONDS = 15

# To import TensorFlow, on a machine with much other load.
IMPORT_SECONDS = 300.0
# Between two looks at processes on this machine.
POLL_SECONDS = 0.1
# For these to end after SIGTERM.
TERM_SECONDS = 3.0
# For peers of a process that leaves to save and end.
SAVE_SECONDS = 25.0

# For a Beam worker's settings, and for each answer of a job service.
BEAM_PROVISION_SECONDS = 30.0
BEAM_ANSWER_SECONDS = 40
# For Beam's servers and workers on this machine to end.
BEAM_STOP_SECONDS = 5
# Between two looks whether a worker has died.
BEAM_WATCH_SECONDS = 0.5
