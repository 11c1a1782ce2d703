"""Defines the commands about what runs need there: manifests and doctor."""

import sys
from typing import Any

import click

from tfx_distribute.pipelines.cli.options import (
    ANY_TARGET,
    FAILED,
    PARAMETER,
    PIPELINE,
    add_options,
    check_options,
    load,
    refuse,
)
from tfx_distribute.pipelines.runners import target as target_lib

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
    left out. For Vertex AI, the `gcloud` commands that give exactly the roles that
    PIPELINE needs.
    """
    from tfx_distribute.trainer_module.errors import ConfigurationError

    target_class = REMOTE_TARGETS[target_name]
    check_options(target_class, options)
    if pipeline is not None:
        target, _ = load(pipeline, parameters, target_class, options)
        try:
            click.echo(target.make_manifests(), nl=False)
        except ConfigurationError as error:
            refuse(str(error))
        return
    if target_name != "kubeflow":
        refuse(f"PIPELINE: is missing; the roles on {target_class.title} follow from the pipeline")
    if parameters:
        refuse("--parameter: belongs to a pipeline; write PIPELINE too")
    from tfx_distribute.pipelines.runners.kubeflow import rbac

    namespace, account = options["namespace"], options["service_account"]
    click.echo(rbac.make_manifests_yaml(namespace or rbac.DEFAULT_NAMESPACE, account or rbac.DEFAULT_ACCOUNT), nl=False)


@click.command()
@PIPELINE
@PARAMETER
@ANY_TARGET
def doctor(pipeline: str, parameters: tuple[str, ...], target_name: str, **options: Any) -> None:
    """Checks with your credentials that a platform is ready for a pipeline.

    Only reads. Each line is a check: pass, fail or unknown, and what to do. Exit code
    0: nothing failed. 1: a check failed. 2: it could not begin.
    """
    from tfx_distribute.trainer_module.errors import ConfigurationError

    target_class = target_lib.get(target_name)
    check_options(target_class, options)
    target, _ = load(pipeline, parameters, target_class, options)
    has_failed = False
    try:
        for finding in target.diagnose():
            click.echo(str(finding))
            has_failed |= finding.status == "fail"
    except ConfigurationError as error:
        refuse(str(error))
    sys.exit(FAILED if has_failed else 0)


for _target in REMOTE_TARGETS.values():
    add_options(manifests, _target.compile_options)
    add_options(doctor, _target.compile_options)
