"""Defines the command `manifests`: the permissions that runs need."""

from typing import Any

import click

from tfx_distribute.pipelines.cli.options import PARAMETER, add_options, check_options, load, refuse, refusing_errors
from tfx_distribute.pipelines.targets import target as target_lib

REMOTE_TARGETS = target_lib.remote_targets()


@click.command()
@click.argument("pipeline", type=click.Path(readable=False), required=False)
@click.option(
    "--target",
    "target_name",
    type=click.Choice(list(REMOTE_TARGETS)),
    default="kubeflow",
    show_default=True,
    help="Platform that runs need permissions on.",
)
@PARAMETER
@click.option("-n", "--namespace", help="Kubeflow: namespace of runs; default targets.kubeflow.namespace, or kubeflow.")
@click.option(
    "--service-account",
    help="Service account that steps of runs act as; default targets.TARGET.service_account, on Kubeflow pipeline-runner.",
)
def manifests(pipeline: str | None, target_name: str, parameters: tuple[str, ...], **options: Any) -> None:
    """Prints the permissions that a run needs.

    For Kubeflow, a Role and a RoleBinding for `kubectl apply -f -`; PIPELINE may be
    left out. Those of Vertex AI are in docs/vertex.md.
    """
    target_class = REMOTE_TARGETS[target_name]
    check_options(target_class, options)
    if pipeline is not None:
        target, _ = load(pipeline, parameters, target_class, options)
        with refusing_errors():
            click.echo(target.make_manifests(), nl=False)
        return
    if target_name != "kubeflow":
        refuse("PIPELINE: is missing")
    if parameters:
        refuse("--parameter: belongs to a pipeline; write PIPELINE too")
    from tfx_distribute.pipelines.targets.kubeflow import rbac

    namespace, account = options["namespace"], options["service_account"]
    click.echo(rbac.make_manifests(namespace or rbac.DEFAULT_NAMESPACE, account or rbac.DEFAULT_ACCOUNT), nl=False)


for _target in REMOTE_TARGETS.values():
    add_options(manifests, _target.compile_options)
