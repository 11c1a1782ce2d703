"""Runs all checks of a pipeline on Vertex AI: makes their requests, and sends them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import requests

from tfx_distribute.pipelines.runners.finding import Finding
from tfx_distribute.pipelines.runners.vertex import access, storage_places
from tfx_distribute.pipelines.runners.vertex import machines as vertex_machines
from tfx_distribute.pipelines.runners.vertex.doctor import (
    project_checks,
    quota_checks,
    resource_checks,
    rest,
    role_checks,
    storage_checks,
)
from tfx_distribute.pipelines.runners.vertex.doctor.check import Check
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.machines import TRAINER, machine_of
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec


def diagnose(spec: PipelineSpec, settings: VertexSettings, custom_job: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Checks a project for a pipeline. Only reads.

    Args:
      spec: The pipeline.
      settings: Settings of Vertex AI, with project and region.
      custom_job: The CustomJob that the Trainer's step would create; None if training
        runs in the step.

    Yields:
      What was found. If there is no such project, nothing else is checked.

    Raises:
      ConfigurationError: There are no credentials.
    """
    with rest.make_session() as session:
        check = project_checks.project(settings)
        (answer,) = rest.send_all(session, list(check.requests))
        finding = check.judge([answer])
        yield finding
        if finding.status == "fail":
            return
        number = str(answer.document.get("name", "")).rpartition("/")[2]
        has_parent = not answer.is_ok or "parent" in answer.document
        checks = make_checks(spec, settings, custom_job, number, has_parent)
        yield from run(session, list(checks))


def make_checks(
    spec: PipelineSpec, settings: VertexSettings, custom_job: Mapping[str, Any] | None, number: str, has_parent: bool
) -> Iterator[Check]:
    """Yields the checks of a pipeline in a project that exists.

    Args:
      spec: As in `diagnose`.
      settings: As in `diagnose`.
      custom_job: As in `diagnose`.
      number: Number of the project; empty if it is not known, then accounts that have
        it in their name are not checked.
      has_parent: True if the project may be in a folder or an organization.
    """
    yield project_checks.services(spec, settings)
    yield project_checks.region(settings)
    yield project_checks.submitter(settings)
    account = access.run_account(settings)
    if number or access.NUMBER not in account:
        yield from project_checks.service_account(settings, account.replace(access.NUMBER, number))
    root = storage_places.bucket_of(settings.pipeline_root)
    for bucket in storage_places.find_buckets(spec, settings):
        yield storage_checks.bucket(bucket, settings, in_region=bool(settings.tensorboard) and bucket == root)
    grants = access.find_grants(spec, settings, trains_remotely=custom_job is not None)
    yield from role_checks.roles(grants, str(settings.project), number, has_parent)
    yield resource_checks.image(settings.image)
    yield from resource_checks.named_resources(settings)
    if custom_job is not None:
        demand = quota_checks.find_demand(custom_job)
    else:
        worker = machine_of(spec.resources, TRAINER)
        demand = quota_checks.find_step_demand(vertex_machines.make_resource_spec(worker).get("accelerator"))
    yield from quota_checks.quotas(demand, settings)


def run(session: requests.Session, checks: Sequence[Check]) -> list[Finding]:
    """Sends the requests of checks, each once, and judges the answers.

    Args:
      session: Sends the requests.
      checks: The checks.
    """
    distinct = {repr(request): request for check in checks for request in check.requests}
    answers = dict(zip(distinct, rest.send_all(session, list(distinct.values())), strict=True))
    return [check.judge([answers[repr(request)] for request in check.requests]) for check in checks]
