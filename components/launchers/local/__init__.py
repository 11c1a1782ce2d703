"""Runs a training cluster as processes of this machine.

`launcher.py` starts, follows and ends it: `processes.py` does so for one attempt, and
`restart_policy.py` decides on the next. `fork_client.py` sends requests to the fork
server, which starts the processes. `silence.py`, `cpu_time.py` and `out_of_memory.py`
interpret what is known about a process; `gpus.py` divides the GPUs, and `loopback.py`
keeps other users out.
"""
