"""Checks that the run's service account has its roles. Pure.

Reads the policies of the project and of single resources. A role may also come from a
folder, an organization or a group, which are not read: then nothing is known.
"""

import functools
from collections.abc import Iterator, Sequence

from tfx_distribute.pipelines.runners.finding import Finding
from tfx_distribute.pipelines.runners.vertex import access
from tfx_distribute.pipelines.runners.vertex.access import Grant
from tfx_distribute.pipelines.runners.vertex.doctor.check import Check, failed, passed, unknown
from tfx_distribute.pipelines.runners.vertex.doctor.rest import Answer, Request, quoted

# Role -> roles that include what is needed of it. Source:
# https://cloud.google.com/iam/docs/roles-permissions
_INCLUDED_IN = {
    "roles/aiplatform.user": ("roles/aiplatform.admin", "roles/editor", "roles/owner"),
    "roles/logging.logWriter": ("roles/logging.admin", "roles/editor", "roles/owner"),
    "roles/iam.serviceAccountUser": ("roles/editor", "roles/owner"),
    # Editors own objects and buckets together.
    "roles/storage.objectUser": ("roles/storage.objectAdmin", "roles/storage.admin", "roles/storage.legacyBucketOwner"),
    "roles/storage.objectViewer": (
        "roles/storage.objectUser",
        "roles/storage.objectAdmin",
        "roles/storage.admin",
        "roles/storage.legacyBucketOwner",
    ),
    "roles/storage.legacyBucketReader": (
        "roles/storage.legacyBucketWriter",
        "roles/storage.legacyBucketOwner",
        "roles/storage.admin",
    ),
    "roles/dataflow.developer": ("roles/dataflow.admin", "roles/editor", "roles/owner"),
    "roles/artifactregistry.reader": ("roles/artifactregistry.writer", "roles/artifactregistry.admin", "roles/editor"),
}


def roles(grants: Sequence[Grant], project: str, number: str, has_parent: bool) -> Iterator[Check]:
    """Yields a check for each role that is not the submitter's.

    Args:
      grants: The roles.
      project: Google Cloud project.
      number: Number of the project; empty if it is not known.
      has_parent: True if the project is in a folder or an organization.
    """
    of_project = _policy_request(Grant(access.PROJECT, project, "", "", ""))
    for grant in grants:
        if grant.member == access.SUBMITTER or (access.NUMBER in grant.member and not number):
            continue
        named = Grant(
            grant.kind,
            grant.resource.replace(access.NUMBER, number),
            grant.role,
            grant.member.replace(access.NUMBER, number),
            grant.reason,
        )
        requests = (of_project,) if named.kind == access.PROJECT else (of_project, _policy_request(named))
        yield Check(_name(named), requests, functools.partial(_judge, named, has_parent))


def _name(grant: Grant) -> str:
    on = "" if grant.kind == access.PROJECT else f" on {grant.resource}"
    return f"{grant.role} of {grant.member.partition(':')[2]}{on}"


def _policy_request(grant: Grant) -> Request:
    if grant.kind == access.PROJECT:
        return Request(f"https://cloudresourcemanager.googleapis.com/v3/projects/{grant.resource}:getIamPolicy", {})
    if grant.kind == access.BUCKET:
        return Request(f"https://storage.googleapis.com/storage/v1/b/{quoted(grant.resource)}/iam")
    if grant.kind == access.ACCOUNT:
        return Request(f"https://iam.googleapis.com/v1/projects/-/serviceAccounts/{grant.resource}:getIamPolicy", {})
    host = "artifactregistry" if grant.kind == access.REPOSITORY else "cloudkms"
    # These two read policies with GET.
    return Request(f"https://{host}.googleapis.com/v1/{grant.resource}:getIamPolicy")


def _judge(grant: Grant, has_parent: bool, answers: Sequence[Answer]) -> Finding:
    check = _name(grant)
    held = _held_roles(answers[0], {grant.member})
    # Buckets have members such as projectEditor:PROJECT.
    basic = {f"project{role.partition('/')[2].title()}" for role in held & {"roles/editor", "roles/owner", "roles/viewer"}}
    for answer in answers[1:]:
        members = {member for binding in answer.document.get("bindings", ()) for member in binding.get("members", ())}
        held |= _held_roles(answer, {grant.member, *(member for member in members if member.partition(":")[0] in basic)})
    accepted = {grant.role, *_INCLUDED_IN.get(grant.role, ())}
    if having := sorted(held & accepted, key=lambda role: role != grant.role):
        return passed(check, "is there" if having[0] == grant.role else f"is included in {having[0]}")
    remedy = f"{grant.reason}: run `{access.make_command(grant)}`"
    if unread := [answer for answer in answers if not answer.is_ok]:
        finding = unknown(check, unread[0], "getIamPolicy")
        return Finding(check, "unknown", finding.text, remedy)
    if custom := sorted(role for role in held if not role.startswith("roles/")):
        return Finding(check, "unknown", f"is not there, unless {', '.join(custom)} has its permissions", remedy)
    if has_parent:
        text = "is not there, unless it comes from the project's folder or organization, or from a group"
        return Finding(check, "unknown", text, remedy)
    return failed(check, "is missing", remedy)


def _held_roles(policy: Answer, members: set[str]) -> set[str]:
    """Returns the roles that one of some members has; with a condition, it may not."""
    bindings = [each for each in policy.document.get("bindings", ()) if "condition" not in each]
    everybody = {"allUsers", "allAuthenticatedUsers"}
    return {each["role"] for each in bindings if (members | everybody) & set(each.get("members", ()))}
