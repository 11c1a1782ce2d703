"""Runs a training cluster as processes of this machine.

`launcher.py` has the launcher; `processes.py` starts, follows and ends the processes of
one attempt. `fork_client.py` sends requests to the fork server, which starts them.
`gpus.py` divides the GPUs, and `loopback.py` keeps other users out.
"""
