"""Runs a training cluster as processes of this machine.

`launcher.py` has the launcher, which follows and ends what `process.py` starts.
`fork_client.py` sends requests to the fork server, which starts them.
`gpus.py` divides the GPUs, and `loopback.py` keeps other users out.
"""
