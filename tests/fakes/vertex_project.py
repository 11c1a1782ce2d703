"""Answers for what is around Vertex AI in a Google Cloud project.

Buckets, roles, service accounts, images, quotas, enabled services and other resources,
of the REST APIs that the SDK and `tfx-distribute doctor` ask. Nothing exists until it
is made. Sources: the reference pages of the services' REST APIs, such as
https://cloud.google.com/storage/docs/json_api/v1/buckets/get.
"""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from vertex_errors import ApiError
from vertex_iam import EVERYBODY, ROLES, Iam

Document = dict[str, Any]

SERVICES = ("aiplatform", "artifactregistry", "cloudkms", "cloudresourcemanager", "compute", "dataflow", "storage")


class Project:
    """A project and what it has.

    Args:
      name: Name of the project.
      number: Number of the project.
      location: The region that Vertex AI is asked for.

    Attributes:
      iam: The policies.
      buckets: Name -> location.
      created: Names of the buckets that were created by a request.
      services: Enabled services, such as `aiplatform.googleapis.com`.
      accounts: E-mail addresses of service accounts; None for any.
      images: Artifact Registry's package -> tag or digest.
      limits: Quota metric -> limit in the region; others have none.
      resources: Names of Vertex AI's TensorBoard instances and of keys.
      reservations: Name -> reservation.
      networks: Names of networks that are peered with Google's services.
      parent: Name of the folder or organization that the project is in.
    """

    def __init__(self, name: str, number: str, location: str):
        self.name, self.number, self.location = name, number, location
        self.iam = Iam(name)
        self.buckets: dict[str, str] = {}
        self.created: list[str] = []
        self.services = {f"{service}.googleapis.com" for service in SERVICES}
        self.accounts: set[str] | None = None
        self.images: dict[str, set[str]] = {}
        self.limits: dict[str, int] = {}
        self.resources: set[str] = set()
        self.reservations: dict[str, Document] = {}
        self.networks: set[str] = set()
        self.parent = ""
        self._routes: list[tuple[re.Pattern[str], Callable[..., Document]]] = [
            (re.compile(pattern), answer)
            for pattern, answer in (
                (r"GET storage/v1/b/([^/]+)", self._bucket),
                (r"POST storage/v1/b", self._create_bucket),
                (r"(?:GET|PUT) storage/v1/b/([^/]+)/iam", self._bucket_policy),
                (r"GET v3/projects/([^/:]+)", self._project),
                (r"POST v3/projects/([^/:]+):getIamPolicy", self._project_policy),
                (r"POST v3/projects/([^/:]+):testIamPermissions", self._project_permissions),
                (r"GET v1/projects/([^/]+)/services:batchGet", self._services),
                (r"GET v1beta1/projects/[^/]+/services/aiplatform.googleapis.com/consumerQuotaMetrics/([^/]+)", self._quota),
                (r"GET v1/roles/(.+)", self._role),
                (r"GET v1/projects/-/serviceAccounts/([^/:]+)", self._account),
                (r"POST v1/projects/-/serviceAccounts/([^/:]+):getIamPolicy", self._account_policy),
                (r"POST v1/projects/-/serviceAccounts/([^/:]+):testIamPermissions", self._account_permissions),
                (r"GET v1/projects/([^/]+)/locations/([^/]+)", self._location),
                (
                    r"GET v1/(projects/[^/]+/locations/[^/]+/repositories/[^/]+/packages/[^/]+)/(?:tags|versions)/([^/]+)",
                    self._image,
                ),
                (r"GET v1/(projects/[^/]+/locations/[^/]+/repositories/[^/]+):getIamPolicy", self._repository_policy),
                (
                    r"GET v1/(projects/[^/]+/locations/[^/]+/(?:tensorboards|keyRings/[^/]+/cryptoKeys)/[^/]+)",
                    self._resource,
                ),
                (r"GET compute/v1/(projects/[^/]+/zones/[^/]+/reservations/[^/]+)", self._reservation),
                (r"GET v1/services/servicenetworking.googleapis.com/connections", self._connections),
            )
        ]

    def make_bucket(self, name: str, location: str = "", is_open: bool = True) -> None:
        """Makes a bucket.

        Args:
          name: Its name.
          location: Its location; empty for the project's region.
          is_open: True if everybody may use its objects.
        """
        self.buckets[name] = (location or self.location).upper()
        if is_open:
            for role in ("roles/storage.objectUser", "roles/storage.legacyBucketReader"):
                self.iam.grant(f"buckets/{name}", role, EVERYBODY)

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, account: str) -> Document | None:
        """Answers a request, or returns None if it is for Vertex AI.

        Args:
          method: HTTP method.
          path: Path; the name of the service may come first.
          query: The query.
          body: The body.
          account: Account that sends it.

        Raises:
          ApiError: The answer is an error.
        """
        words = path.strip("/").split("/")
        if words[0].endswith(".googleapis.com"):
            self._check_enabled(words[0])
            words = words[1:]
        for pattern, reply in self._routes:
            if match := pattern.fullmatch(f"{method} {'/'.join(words)}"):
                content = json.loads(body) if body else {}
                return reply(*map(unquote, match.groups()), query=query, content=content, account=account)
        return None

    def _check_enabled(self, service: str) -> None:
        name = service.removesuffix(".googleapis.com")
        if name in SERVICES and name != "aiplatform" and service not in self.services:
            message = f"{service} has not been used in project {self.number} before or it is disabled."
            raise ApiError(403, message, details=({"reason": "SERVICE_DISABLED", "metadata": {"service": service}},))

    def check(self, account: str, permission: str, resource: str, name: str = "") -> None:
        """Raises what the services answer to an account without a permission."""
        if not self.iam.allows(account, permission, resource):
            raise ApiError(403, f"{account} does not have {permission} access to {name or resource}.")

    def check_bucket(self, name: str, account: str) -> None:
        """Refuses a pipeline whose account cannot use its bucket."""
        needed = ("storage.objects.get", "storage.objects.create")
        if name not in self.buckets or not all(self.iam.allows(account, each, f"buckets/{name}") for each in needed):
            raise ApiError(
                400,
                f"Failed to create pipeline job. Error: Service account `{account}` does not have "
                f"`[{', '.join(needed)}]` IAM permission(s) to the bucket `{name}`. Please either copy the files to the "
                "Google Cloud Storage bucket owned by your project, or grant the required IAM permission(s) to the service "
                "account.",
                "FAILED_PRECONDITION",
            )

    def check_act_as(self, account: str, service_account: str) -> None:
        """Refuses a job for a service account that the sender may not act as."""
        known = self.accounts is None or service_account in self.accounts
        if not known or not self.iam.allows(account, "iam.serviceAccounts.actAs", f"serviceAccounts/{service_account}"):
            message = f"You do not have permission to act as service_account: {service_account}. (or it may not exist)."
            raise ApiError(400, message)

    def _bucket(self, name: str, account: str, **_: object) -> Document:
        if name not in self.buckets:
            raise ApiError(404, "The specified bucket does not exist.")
        self.check(account, "storage.buckets.get", f"buckets/{name}", "the Google Cloud Storage bucket")
        return {"kind": "storage#bucket", "name": name, "location": self.buckets[name], "projectNumber": self.number}

    def _create_bucket(self, content: Document, account: str, **_: object) -> Document:
        self.check(account, "storage.buckets.create", f"projects/{self.name}")
        self.created.append(content["name"])
        self.make_bucket(content["name"], content.get("location", "US"))
        return {"kind": "storage#bucket", "name": content["name"]}

    def _bucket_policy(self, name: str, account: str, **_: object) -> Document:
        if name not in self.buckets:
            raise ApiError(404, "The specified bucket does not exist.")
        self.check(account, "storage.buckets.getIamPolicy", f"buckets/{name}", "the Google Cloud Storage bucket")
        return self.iam.document(f"buckets/{name}")

    def _project(self, name: str, account: str, **_: object) -> Document:
        if name not in (self.name, self.number):
            raise ApiError(
                403, f"Permission 'resourcemanager.projects.get' denied on resource (or it may not exist): {name}"
            )
        parent = {"parent": self.parent} if self.parent else {}
        return {"name": f"projects/{self.number}", "projectId": self.name, "state": "ACTIVE", **parent}

    def _project_policy(self, name: str, account: str, **_: object) -> Document:
        self.check(account, "resourcemanager.projects.getIamPolicy", f"projects/{name}")
        return self.iam.document(f"projects/{name}")

    def _project_permissions(self, name: str, content: Document, account: str, **_: object) -> Document:
        held = self.iam.filtered(account, content["permissions"], f"projects/{name}")
        return {"permissions": held} if held else {}

    def _services(self, project: str, query: dict[str, str], **_: object) -> Document:
        # The stand-in keeps one value of each name, so all services are answered.
        names = (f"{service}.googleapis.com" for service in (*SERVICES, "servicenetworking"))
        states = {name: "ENABLED" if name in self.services else "DISABLED" for name in names}
        return {
            "services": [
                {"name": f"projects/{self.number}/services/{name}", "state": state} for name, state in states.items()
            ]
        }

    def _quota(self, metric: str, **_: object) -> Document:
        limit = self.limits.get(metric, -1)
        buckets: list[Document] = [{"effectiveLimit": str(min(limit, 0))}]  # of all other regions
        buckets.append({"effectiveLimit": str(limit), "dimensions": {"region": self.location}})
        return {
            "metric": metric,
            "consumerQuotaLimits": [{"metric": metric, "unit": "1/{project}/{region}", "quotaBuckets": buckets}],
        }

    def _role(self, name: str, **_: object) -> Document:
        if f"roles/{name}" not in ROLES:
            raise ApiError(404, f"The role named roles/{name} was not found.")
        return {"name": f"roles/{name}", "includedPermissions": sorted(ROLES[f"roles/{name}"])}

    def _account(self, email: str, account: str, **_: object) -> Document:
        if self.accounts is not None and email not in self.accounts:
            raise ApiError(404, f"Unknown service account: {email}")
        self.check(account, "iam.serviceAccounts.get", f"serviceAccounts/{email}")
        return {"email": email, "name": f"projects/{self.name}/serviceAccounts/{email}"}

    def _account_policy(self, email: str, account: str, **_: object) -> Document:
        self.check(account, "iam.serviceAccounts.getIamPolicy", f"serviceAccounts/{email}")
        return self.iam.document(f"serviceAccounts/{email}")

    def _account_permissions(self, email: str, content: Document, account: str, **_: object) -> Document:
        held = self.iam.filtered(account, content["permissions"], f"serviceAccounts/{email}")
        return {"permissions": held} if held else {}

    def _location(self, project: str, location: str, **_: object) -> Document:
        if location != self.location:
            raise ApiError(404, f"Location {location} is not found or access is unauthorized.")
        return {"name": f"projects/{project}/locations/{location}", "locationId": location}

    def _image(self, package: str, version: str, account: str, **_: object) -> Document:
        if version not in self.images.get(package, set()):
            raise ApiError(404, "Requested entity was not found.")
        return {"name": f"{package}/tags/{version}"}

    def _repository_policy(self, name: str, account: str, **_: object) -> Document:
        self.check(account, "artifactregistry.repositories.getIamPolicy", f"repositories/{name}")
        return self.iam.document(f"repositories/{name}")

    def _resource(self, name: str, **_: object) -> Document:
        if name not in self.resources:
            raise ApiError(404, f"{name} is not found.")
        return {"name": name}

    def _reservation(self, name: str, **_: object) -> Document:
        if name not in self.reservations:
            raise ApiError(404, f"The resource '{name}' was not found")
        return self.reservations[name]

    def _connections(self, query: dict[str, str], **_: object) -> Document:
        network = query.get("network", "")
        return (
            {"connections": [{"network": network, "peering": "servicenetworking-googleapis-com"}]}
            if network in self.networks
            else {}
        )
