"""`python -m tfx_distribute.pipelines`: the same as the command `tfx-distribute`."""

from tfx_distribute.pipelines.cli.main import main

main()
