"""Lists how long the processes of a training wait, in seconds.

These are of what runs in a training process; `components/timeouts.py` has the others.
"""

# Without a renewal, until the chief ends. Longer than a step waits for a cluster that
# does not answer, and longer than it takes for the step to be started again.
ABANDONED_SECONDS = 1800.0
# How much longer processes other than the chief stay: it may need them to save.
AFTER_CHIEF_SECONDS = 300.0
# How long the chief cannot be reached before it counts as gone.
CHIEF_GONE_SECONDS = 30.0
# Between two looks for the other processes of the cluster.
RENDEZVOUS_POLL_SECONDS = 1.0
# Until the first report of who is missing; each later one takes twice as long.
RENDEZVOUS_REPORT_SECONDS = 60.0
# Until parameter servers listen. After that, TensorFlow waits without logging.
SERVERS_LISTEN_SECONDS = 60.0
# Between two signs of life, which a launcher on the same machine looks for.
SIGN_SECONDS = 1.0
# Without progress, until the first report; each later one takes twice as long.
STALL_REPORT_SECONDS = 60.0
# For a stuck process to write its reason before it ends.
REASON_SECONDS = 20.0
# From SIGTERM to SIGKILL: Kubernetes's default, and what Compute Engine gives to a spot
# machine of Vertex AI.
TERMINATION_SECONDS = 30.0
# For all functions of `atexit`: one may wait for a service that does not answer.
EXIT_FUNCTIONS_SECONDS = 10.0
# Between two flushes of the history to an address. TensorBoard's writer waits as long.
HISTORY_FLUSH_SECONDS = 30.0
# For writing the rest of the history when the process ends.
HISTORY_CLOSE_SECONDS = 10.0
# To load the exported model and to answer; a model of several GB takes minutes.
MODEL_CHECK_SECONDS = 900.0
