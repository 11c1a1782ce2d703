"""Ends a command that fails or is interrupted with one message and an exit code."""

import io
import sys
from typing import Any

import click

from tfx_distribute.pipelines.cli.options import INTERRUPTED, refuse
from tfx_distribute.pipelines.cli.terminal import SafeStream

KFP = ("kfp", "kfp_server_api")  # only extras have it


class Group(click.Group):
    """A group of commands that always end with one message and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command with streams that accept any text."""
        for name in ("stdout", "stderr"):
            if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
                stream.flush()
                setattr(sys, name, SafeStream(stream))
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in KFP:
                raise
            refuse(
                "the package kfp is not installed, and pipelines for Kubeflow Pipelines and Vertex AI need it; write "
                "`uv pip install '.[kfp]'`, or '.[vertex]', in the checkout of tfx-distribute"
            )
        except BrokenPipeError:  # click ends quietly
            raise
        except OSError as error:
            refuse(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror or error))
