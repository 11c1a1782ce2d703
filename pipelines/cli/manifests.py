"""Defines the command `manifests`: the permissions that runs on Kubeflow need."""

import click


@click.command()
@click.option("-n", "--namespace", default="kubeflow", show_default=True, help="Namespace of runs.")
@click.option(
    "--service-account", default="pipeline-runner", show_default=True, help="Service account that steps of runs act as."
)
def manifests(namespace: str, service_account: str) -> None:
    """Prints the Role and RoleBinding that runs on Kubeflow need.

    They are for `kubectl apply -f -`. Write the namespace and the service account of
    `targets.kubeflow`, if they are not the defaults.
    """
    from tfx_distribute.pipelines.targets.kubeflow import rbac

    click.echo(rbac.make_manifests(namespace, service_account), nl=False)
