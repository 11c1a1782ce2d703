"""Keeps who may do what in the stand-in's project: roles of members on resources.

The roles have those of their permissions that matter here. Source, read in November
2026: https://cloud.google.com/iam/docs/roles-permissions, pages aiplatform, storage,
iam, logging, artifactregistry, dataflow and cloudkms.
"""

from collections import defaultdict
from collections.abc import Iterable

OWNER = "owner@example.com"  # of the project
EVERYBODY = "allAuthenticatedUsers"

_OBJECTS = {f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list", "update")}
_JOBS = {
    f"aiplatform.{kind}.{verb}"
    for kind in ("customJobs", "pipelineJobs", "schedules")
    for verb in ("cancel", "create", "delete", "get", "list")
}
ROLES: dict[str, set[str]] = {
    "roles/aiplatform.user": _JOBS
    | {"aiplatform.locations.get", "aiplatform.metadataStores.get", "aiplatform.tensorboards.get"},
    "roles/iam.serviceAccountUser": {f"iam.serviceAccounts.{verb}" for verb in ("actAs", "get", "list")},
    "roles/storage.objectUser": _OBJECTS,
    "roles/storage.objectAdmin": _OBJECTS | {"storage.objects.setIamPolicy"},
    "roles/storage.objectViewer": {"storage.objects.get", "storage.objects.list"},
    "roles/storage.legacyBucketReader": {"storage.buckets.get", "storage.objects.list"},
    "roles/storage.admin": _OBJECTS | {f"storage.buckets.{verb}" for verb in ("create", "get", "list", "getIamPolicy")},
    "roles/storage.legacyBucketOwner": _OBJECTS | {"storage.buckets.get", "storage.buckets.getIamPolicy"},
    "roles/editor": _JOBS | {"iam.serviceAccounts.actAs", "logging.logEntries.create"},
    "roles/logging.logWriter": {"logging.logEntries.create", "logging.logEntries.route"},
    "roles/artifactregistry.reader": {f"artifactregistry.{each}.get" for each in ("tags", "versions", "dockerimages")}
    | {"artifactregistry.repositories.downloadArtifacts"},
    "roles/dataflow.developer": {f"dataflow.jobs.{verb}" for verb in ("create", "get", "list", "cancel")},
    "roles/dataflow.worker": {"dataflow.workItems.lease", "dataflow.workItems.update"},
    "roles/cloudkms.cryptoKeyEncrypterDecrypter": {
        "cloudkms.cryptoKeyVersions.useToEncrypt",
        "cloudkms.cryptoKeyVersions.useToDecrypt",
    },
    "roles/serviceusage.serviceUsageConsumer": {
        "serviceusage.services.use",
        "serviceusage.services.get",
        "serviceusage.quotas.get",
    },
}


class Iam:
    """The policies of a project and of what is in it.

    Resources are named as in `projects/NAME`, `buckets/NAME`, `serviceAccounts/EMAIL`,
    `repositories/NAME` and `keys/NAME`.

    Args:
      project: Name of the project, whose roles count for everything in it.

    Attributes:
      policies: Resource -> role -> members, such as `user:EMAIL`.
      used: What accounts did: account, permission, resource.
    """

    def __init__(self, project: str):
        self._project = f"projects/{project}"
        self.policies: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.used: set[tuple[str, str, str]] = set()

    def grant(self, resource: str, role: str, member: str) -> None:
        """Gives a member a role on a resource."""
        if role not in ROLES:
            raise ValueError(f"Role {role} is not supported for this resource.")
        self.policies[resource][role].add(member)

    def revoke(self, resource: str, role: str) -> None:
        """Takes a role on a resource from all of its members."""
        del self.policies[resource][role]

    def allows(self, account: str, permission: str, resource: str) -> bool:
        """Returns True if an account has a permission on a resource; notes its use."""
        if account == OWNER:
            return True
        self.used.add((account, permission, resource))
        members = {f"user:{account}", f"serviceAccount:{account}", EVERYBODY}
        return any(
            permission in ROLES[role] and members & holders
            for each in (self._project, resource)
            for role, holders in self.policies[each].items()
        )

    def filtered(self, account: str, permissions: Iterable[str], resource: str) -> list[str]:
        """Returns those of some permissions that an account has; notes no use."""
        before = set(self.used)
        held = [permission for permission in permissions if self.allows(account, permission, resource)]
        self.used = before
        return held

    def document(self, resource: str) -> dict[str, object]:
        """Returns the policy of a resource as the services' `getIamPolicy` does."""
        policy = self.policies[resource]
        return {"version": 1, "bindings": [{"role": role, "members": sorted(policy[role])} for role in sorted(policy)]}
