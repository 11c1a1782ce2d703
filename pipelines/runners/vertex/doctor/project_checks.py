"""Checks the project, its services and its region. Pure."""

import re
from collections.abc import Iterator, Sequence

from tfx_distribute.pipelines.runners.finding import Finding
from tfx_distribute.pipelines.runners.vertex import access, image_name
from tfx_distribute.pipelines.runners.vertex.doctor.check import Check, failed, passed, unknown
from tfx_distribute.pipelines.runners.vertex.doctor.rest import UNREACHABLE, Answer, Request
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec

_NO_SUCH_HOST = re.compile("Name or service not known|NameResolution|nodename nor servname")  # a region has a host
SUBMITTING = ("aiplatform.pipelineJobs.create", "aiplatform.pipelineJobs.get")


def project(settings: VertexSettings) -> Check:
    """Checks that the project exists; its answer has the project's number too."""
    name = f"project {settings.project}"

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer.is_ok and answer.document.get("state") == "ACTIVE":
            return passed(name, f"exists ({answer.document.get('name', '')})")
        if answer.is_ok or (answer.code in (403, 404) and not answer.disabled_service):
            reason = answer.message or f"it is {answer.document.get('state')}"
            remedy = "write its id as targets.vertex.project or --project, and ask for roles/browser on it"
            return failed(name, f"does not exist, or you may not see it ({reason})", remedy)
        return unknown(name, answer)

    return Check(name, (Request(f"https://cloudresourcemanager.googleapis.com/v3/projects/{settings.project}"),), judge)


def services(spec: PipelineSpec, settings: VertexSettings) -> Check:
    """Checks that the services that the pipeline uses are enabled in the project."""
    needed = ["aiplatform.googleapis.com", "storage.googleapis.com", "compute.googleapis.com"]
    image = image_name.parse(settings.image)
    if image and image.project == settings.project:
        needed.append("artifactregistry.googleapis.com")
    if spec.beam.runner == "dataflow":
        needed.append("dataflow.googleapis.com")
    query = "&".join(f"names=projects/{settings.project}/services/{service}" for service in needed)
    name = "services"

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if not answer.is_ok:
            return unknown(name, answer, "serviceusage.services.get")
        states = {each["name"].rpartition("/")[2]: each.get("state") for each in answer.document.get("services", ())}
        disabled = [service for service in needed if states.get(service) != "ENABLED"]
        if disabled:
            command = f"gcloud services enable {' '.join(disabled)} --project={settings.project}"
            return failed(name, f"{', '.join(disabled)} not enabled", f"run `{command}`")
        return passed(name, f"{', '.join(needed)} are enabled")

    url = f"https://serviceusage.googleapis.com/v1/projects/{settings.project}/services:batchGet?{query}"
    return Check(name, (Request(url),), judge)


def region(settings: VertexSettings) -> Check:
    """Checks that Vertex AI is in the region."""
    name = f"region {settings.region}"

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer.is_ok:
            return passed(name, "Vertex AI is there")
        if answer.code == 404 or (answer.code == UNREACHABLE and _NO_SUCH_HOST.search(answer.message)):
            remedy = "choose one of https://cloud.google.com/vertex-ai/docs/general/locations"
            return failed(name, f"Vertex AI does not answer there ({answer.message})", remedy)
        return unknown(name, answer, "aiplatform.locations.get")

    url = f"https://{settings.region}-aiplatform.googleapis.com/v1/projects/{settings.project}/locations/{settings.region}"
    return Check(name, (Request(url),), judge)


def submitter(settings: VertexSettings) -> Check:
    """Checks that this person may create pipeline jobs."""
    name = "you"

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if not answer.is_ok:
            return unknown(name, answer)
        missing = sorted(set(SUBMITTING) - set(answer.document.get("permissions", ())))
        if missing:
            return failed(name, f"may not run pipelines: {', '.join(missing)} missing", "ask for roles/aiplatform.user")
        return passed(name, "may run pipelines")

    url = f"https://cloudresourcemanager.googleapis.com/v3/projects/{settings.project}:testIamPermissions"
    return Check(name, (Request(url, {"permissions": list(SUBMITTING)}),), judge)


def service_account(settings: VertexSettings, account: str) -> Iterator[Check]:
    """Checks that the run's service account exists, and that this person may use it.

    Args:
      settings: Settings of Vertex AI.
      account: E-mail address of the account.
    """
    name = f"service account {account}"
    url = f"https://iam.googleapis.com/v1/projects/-/serviceAccounts/{account}"

    def judge_existence(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer.is_ok and not answer.document.get("disabled"):
            return passed(name, "exists")
        if answer.is_ok:
            return failed(name, "is disabled", f"run `gcloud iam service-accounts enable {account}`")
        if answer.code == 404:
            name_of_account = account.partition("@")[0]
            command = f"gcloud iam service-accounts create {name_of_account} --project={settings.project}"
            return failed(name, "does not exist", f"run `{command}`, and give it its roles")
        return unknown(name, answer, "iam.serviceAccounts.get")

    def judge_use(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if not answer.is_ok:
            return unknown(f"use of {account}", answer)
        if "iam.serviceAccounts.actAs" in answer.document.get("permissions", ()):
            return passed(f"use of {account}", "you may have runs act as it")
        grant = access.Grant(access.ACCOUNT, account, "roles/iam.serviceAccountUser", access.SUBMITTER, "")
        remedy = f"run `{access.make_command(grant)}`, with you as SUBMITTER"
        return failed(f"use of {account}", "you may not have runs act as it", remedy)

    yield Check(name, (Request(url),), judge_existence)
    permissions = {"permissions": ["iam.serviceAccounts.actAs"]}
    yield Check(f"use of {account}", (Request(f"{url}:testIamPermissions", permissions),), judge_use)
