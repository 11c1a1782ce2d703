"""Sends requests about a job of a training to the Kubernetes API.

Requests are repeated while the API does not answer, and a refusal becomes an error that
names the remedy.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import urllib3
from absl import logging
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.errors import GoneError, NotFollowedError
from tfx_distribute.components.launchers.kubernetes import connection, permissions, queues, remedies
from tfx_distribute.components.launchers.kubernetes.dropped_fields import find_dropped
from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind
from tfx_distribute.components.launchers.kubernetes.permissions import Permission
from tfx_distribute.components.launchers.kubernetes.pod_log import LAST_LINES
from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

REQUEST_SECONDS = 30.0  # for one answer
LAST_REQUEST_SECONDS = 5.0  # for one answer, for a launcher that has to end
# For the API to answer when a job is deleted. After that, its chief ends by itself.
DELETE_SECONDS = 120.0
# For an admission webhook to answer: the controller's pod may be starting again.
WEBHOOK_SECONDS = 45.0

_NO_PERMISSION = re.compile(r"cannot \w+ resource")
_PERMISSION_REMEDY = "apply what `tfx-distribute manifests` prints, or name another targets.kubeflow.service_account"

T = TypeVar("T")


def has_kind(kind: JobKind) -> bool:
    """Returns True if the cluster has a kind of job, or may have it.

    Raises:
      ConfigurationError: The API server's certificate is not trusted.
      TrainingError: The API server does not answer.
    """
    api = client.CustomObjectsApi(connection.api_client())
    try:
        found = _call_kubernetes(lambda: api.get_api_resources(kind.group, kind.version, _request_timeout=REQUEST_SECONDS))
    except ApiException as error:
        return bool(error.status != 404)  # everybody may ask, by default
    return any(resource.name == kind.plural for resource in found.resources)


class JobClient:
    """Sends requests about one job.

    Attributes:
      kind: Kind of the job.
      name: Its name.
      namespace: Its namespace.
    """

    def __init__(self, kind: JobKind, name: str, namespace: str):
        self.kind, self.name, self.namespace = kind, name, namespace
        self._api = connection.api_client()
        self._custom, self._core = client.CustomObjectsApi(self._api), client.CoreV1Api(self._api)
        self._not_allowed: set[Permission] = set()  # of those that only explain
        self._kueue_version = ""
        self._was_answered = False  # about the job
        self._resource = {"group": kind.group, "version": kind.version, "plural": kind.plural, "namespace": namespace}

    def __str__(self) -> str:
        return f"{self.kind.title} {self.name}"

    def check_permissions(self) -> None:
        """Checks that this step may do what following a job takes.

        Raises:
          ConfigurationError: It may not; the message has all that is missing.
        """
        missing = [str(each) for each in permissions.needed(self.kind.plural) if not self._is_allowed(each)]
        if missing:
            raise ConfigurationError(
                f"the service account of this step may not run a {self.kind.title} in namespace {self.namespace}: it may "
                f"not {', '.join(missing)}; {_PERMISSION_REMEDY}"
            )
        if not self._is_allowed(permissions.LIST_EVENTS):
            self._warn_of(permissions.LIST_EVENTS)

    def check_queue(self, queue: str) -> None:
        """Checks that a job can wait in a queue of Kueue.

        Raises:
          ConfigurationError: It cannot; the message has the names of other queues.
        """
        found = self._list_of_kueue(permissions.LIST_QUEUES)
        if found is None:
            return
        problem = queues.find_problem(queue, self.namespace, found)
        if problem:
            raise ConfigurationError(f"targets.kubeflow.queue: {problem}")

    def create(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """Creates the job.

        Returns:
          The job; None if one of this name exists already.

        Raises:
          ConfigurationError: The cluster refuses it, or does not know all of it.
        """
        deadline = time.monotonic() + WEBHOOK_SECONDS

        def is_transient(error: Exception) -> bool:
            if self._was_answered and _is_not_served(error):  # it was, so it may be again
                return True
            return _is_transient(error) and not (_is_webhook_failure(error) and time.monotonic() > deadline)

        try:
            created: dict[str, Any] = retry.call_with_retries(
                lambda: self._custom.create_namespaced_custom_object(
                    body=manifest, _request_timeout=REQUEST_SECONDS, **self._resource
                ),
                "the Kubernetes API server",
                is_transient,
            )
        except ApiException as error:
            if error.status == 409:
                return None
            raise self._explain(error) from error
        self._was_answered = True
        dropped = find_dropped(manifest["spec"], created["spec"], "spec")
        if dropped:
            self.delete_if(lambda job: bool(job["metadata"]["uid"] == created["metadata"]["uid"]), DELETE_SECONDS)
            raise ConfigurationError(
                f"the {self.kind.title}s of this cluster have no {', '.join(dropped)}; {self.kind.install}"
            )
        return created

    def get(self) -> dict[str, Any]:
        """Returns the job with its current status.

        Raises:
          GoneError: It does not exist.
        """
        return self._call_for_existing(
            lambda: self._custom.get_namespaced_custom_object(
                name=self.name, _request_timeout=REQUEST_SECONDS, **self._resource
            )
        )

    def set_owners(self, owners: list[dict[str, Any]]) -> None:
        """Replaces the owners of the job.

        Args:
          owners: The new `ownerReferences`.

        Raises:
          GoneError: The job does not exist.
        """
        body = {"metadata": {"ownerReferences": owners}}
        self._call_for_existing(
            lambda: self._custom.patch_namespaced_custom_object(
                name=self.name, body=body, _request_timeout=REQUEST_SECONDS, **self._resource
            )
        )

    def delete_if(self, condition: Callable[[dict[str, Any]], bool], timeout_seconds: float | None) -> None:
        """Deletes the job and its pods if a condition holds; logs if it cannot.

        Args:
          condition: Returns True if this job, as the cluster has it, is to be deleted.
          timeout_seconds: How long to repeat requests that the API does not answer; 0
            to send each once, None for `retry.TIMEOUT_SECONDS`.
        """

        def delete() -> None:
            job = self._custom.get_namespaced_custom_object(
                name=self.name, _request_timeout=LAST_REQUEST_SECONDS, **self._resource
            )
            if not condition(job):
                return
            logging.info("removing %s", self)
            # In the foreground: what belongs to the job goes first. JobSet would take
            # an old Job for one of a new JobSet of the same name.
            options = client.V1DeleteOptions(
                propagation_policy="Foreground", preconditions=client.V1Preconditions(uid=job["metadata"]["uid"])
            )
            self._custom.delete_namespaced_custom_object(
                name=self.name, body=options, _request_timeout=LAST_REQUEST_SECONDS, **self._resource
            )

        try:
            retry.call_with_retries(
                delete, "the Kubernetes API server", _may_pass if self._was_answered else _is_transient, timeout_seconds
            )
        except (ApiException, urllib3.exceptions.HTTPError, NotFollowedError) as error:
            if isinstance(error, ApiException) and error.status in (404, 409):  # gone, or replaced by another
                return
            reason = _message(error) if isinstance(error, ApiException) else error
            logging.warning("cannot delete %s, whose pods may run for another half an hour: %s", self, reason)

    def list_pods(self) -> list[client.V1Pod]:
        """Returns the pods of the job."""
        selector = f"{self.kind.name_label}={self.name}"
        try:
            pods = self._call(
                lambda: self._core.list_namespaced_pod(
                    self.namespace, label_selector=selector, _request_timeout=REQUEST_SECONDS
                )
            )
        except ApiException as error:
            raise self._explain(error) from error
        return list(pods.items)

    def list_events_of_pod(self, uid: str) -> list[client.CoreV1Event]:
        """Returns the events about a pod; none if they cannot be listed now.

        They only explain, so that a training goes on without them.
        """
        return self._list_events(f"involvedObject.uid={uid}") or []

    def list_events(self, job: Mapping[str, Any]) -> list[client.CoreV1Event] | None:
        """Returns the events about the job that say why it has no pods.

        Returns:
          The events; None if they cannot be listed now.
        """
        events: list[client.CoreV1Event] = []
        for selector in self.kind.event_selectors(job):
            found = self._list_events(selector)
            if found is None:
                return None
            events += (event for event in found if f"{event.involved_object.name}-".startswith(f"{self.name}-"))
        return events

    def list_workloads(self, uid: str) -> list[dict[str, Any]] | None:
        """Returns what Kueue made for the job; None if it cannot be listed now."""
        return self._list_of_kueue(permissions.LIST_WORKLOADS, f"{queues.JOB_UID_LABEL}={uid}")

    def last_lines(self, pod: str, container: str = CONTAINER) -> list[str]:
        """Returns the last lines of a container; none if its log cannot be read."""
        try:
            answer = self._core.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                tail_lines=LAST_LINES,
                _preload_content=False,
                _request_timeout=REQUEST_SECONDS,
            )
        except (ApiException, urllib3.exceptions.HTTPError):
            return []
        lines: list[str] = answer.data.decode(errors="replace").rstrip().splitlines()
        return lines

    def _list_events(self, selector: str) -> list[client.CoreV1Event] | None:
        if permissions.LIST_EVENTS in self._not_allowed:
            return None
        try:
            events = self._core.list_namespaced_event(
                self.namespace, field_selector=selector, _request_timeout=REQUEST_SECONDS
            )
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            if isinstance(error, ApiException) and error.status == 403:
                self._warn_of(permissions.LIST_EVENTS)
            return None
        return list(events.items)

    def _list_of_kueue(self, permission: Permission, selector: str = "") -> list[dict[str, Any]] | None:
        """Returns objects of Kueue; None if they cannot be listed now.

        Raises:
          ConfigurationError: The cluster does not have Kueue.
        """
        if permission in self._not_allowed:
            return None
        try:
            answer = _call_kubernetes(
                lambda: self._custom.list_namespaced_custom_object(
                    queues.GROUP,
                    self._find_kueue_version(),
                    self.namespace,
                    permission.resource,
                    label_selector=selector,
                    _request_timeout=REQUEST_SECONDS,
                )
            )
        except ApiException as error:
            if error.status == 403:
                self._warn_of(permission)
            return None
        return list(answer["items"])

    def _find_kueue_version(self) -> str:
        """Returns the version of Kueue's API that the cluster prefers.

        Raises:
          ConfigurationError: The cluster does not have Kueue.
        """
        if not self._kueue_version:
            groups = client.ApisApi(self._api).get_api_versions(_request_timeout=REQUEST_SECONDS).groups
            version = next((group.preferred_version.version for group in groups if group.name == queues.GROUP), "")
            if not version:
                raise ConfigurationError(
                    "targets.kubeflow.queue: the cluster does not have Kueue, whose queues these are; have it installed "
                    "(https://kueue.sigs.k8s.io), or leave queue out"
                )
            self._kueue_version = version
        return self._kueue_version

    def _warn_of(self, permission: Permission) -> None:
        self._not_allowed.add(permission)
        logging.warning(
            "this step may not %s in namespace %s, and so cannot say why pods are refused or wait; apply what "
            "`tfx-distribute manifests` prints",
            permission,
            self.namespace,
        )

    def _is_allowed(self, permission: Permission) -> bool:
        """Returns True if this step has a permission, or cannot ask for it."""
        review = permissions.make_review(permission, self.namespace)
        try:
            answer = _call_kubernetes(
                lambda: client.AuthorizationV1Api(self._api).create_self_subject_access_review(
                    review, _request_timeout=REQUEST_SECONDS
                )
            )
        except ApiException:  # everybody may ask, by default
            return True
        return bool(answer.status.allowed)

    def _call_for_existing(self, request: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Sends a request about a job that has been created."""
        try:
            return self._call(request, _is_not_served)
        except ApiException as error:
            if self._is_gone(error):
                raise GoneError(f"{self} is gone: somebody has deleted it while it was training") from error
            raise self._explain(error) from error

    def _is_gone(self, error: ApiException) -> bool:
        """Returns True if the API server says that the job does not exist."""
        status = _read_status(error)
        details = status.get("details") or {}
        is_job = (details.get("kind"), details.get("name")) == (self.kind.plural, self.name)
        return error.status == 404 and status.get("reason") == "NotFound" and is_job

    def _call(self, request: Callable[[], T], may_pass_too: Callable[[Exception], bool] = lambda error: False) -> T:
        """Sends a request about the job or its pods.

        Once one was answered, a refusal may pass: an API server that starts again
        refuses everybody until it has read all accounts and roles. Source:
        https://github.com/kubernetes/kubernetes/issues/65785

        Args:
          request: Sends the request once.
          may_pass_too: Returns True for other errors that may pass.
        """
        may_pass = _may_pass if self._was_answered else _is_transient
        try:
            answer = _call_kubernetes(request, lambda error: may_pass(error) or may_pass_too(error))
        except TrainingError as error:
            if isinstance(error.__cause__, ApiException) and error.__cause__.status in (401, 403):
                raise error.__cause__ from error  # it has not passed
            raise
        self._was_answered = True
        return answer

    def _explain(self, error: ApiException) -> ConfigurationError:
        """Returns an error that explains a refusal and names the remedy."""
        message = _message(error)
        # Quotas, policies and admission webhooks answer 403 too, with other words.
        if error.status == 403 and _NO_PERMISSION.search(message):
            return ConfigurationError(
                f"the service account of this step may not run a {self.kind.title} in namespace {self.namespace} "
                f"({message}); {_PERMISSION_REMEDY}"
            )
        if error.status == 404 and message.startswith("namespaces "):
            return ConfigurationError(
                f"the cluster has no namespace {self.namespace} ({message}); create it, or run in another"
            )
        if error.status == 404:
            return ConfigurationError(
                f"the cluster does not have {self.kind.title}s ({message}); {self.kind.install}, or write "
                "targets.kubeflow.training: step"
            )
        if _is_webhook_failure(error):
            return ConfigurationError(f"the cluster cannot check {self} ({message}); {self.kind.see_controller()}")
        return ConfigurationError(f"the cluster refuses {self}: {remedies.with_remedy(message)}")


def _may_pass(error: Exception) -> bool:
    """Returns True for an error that may pass if requests were allowed before."""
    if isinstance(error, ApiException) and error.status == 403:
        return bool(_NO_PERMISSION.search(_message(error)))  # and not a quota or a policy
    return _is_transient(error) or (isinstance(error, ApiException) and error.status == 401)


def _call_kubernetes(request: Callable[[], T], is_transient: Callable[[Exception], bool] | None = None) -> T:
    """Sends a request, repeatedly while the API server does not answer."""
    try:
        return retry.call_with_retries(request, "the Kubernetes API server", is_transient or _is_transient)
    except urllib3.exceptions.HTTPError as error:  # all others are transient
        raise ConfigurationError(
            f"this step does not trust the certificate of the Kubernetes API server ({error}); see whether the ca.crt of "
            "its service account, or of kubectl's configuration, is that of the cluster"
        ) from error


def _is_transient(error: Exception) -> bool:
    """Returns True for an error after which another request may succeed."""
    if isinstance(error, ApiException):
        return not error.status or error.status == 429 or error.status >= 500
    return isinstance(error, urllib3.exceptions.HTTPError) and not connection.is_untrusted(error)


def _is_not_served(error: Exception) -> bool:
    """Returns True for a 404 that names no object.

    The API server answers so, in plain text, while it does not serve a resource: it
    starts again, or the resource's definition is being replaced.
    """
    if not isinstance(error, ApiException) or error.status != 404:
        return False
    return not (_read_status(error).get("details") or {}).get("name")


def _is_webhook_failure(error: Exception) -> bool:
    """Returns True if an admission webhook for the job does not answer."""
    return isinstance(error, ApiException) and error.status == 500 and "failed calling webhook" in _message(error)


def _message(error: ApiException) -> str:
    """Returns the API server's own words, where its answer has any."""
    return str(_read_status(error).get("message") or f"{error.status} {error.reason}")


def _read_status(error: ApiException) -> dict[str, Any]:
    """Returns the `Status` that an error was answered with; empty if with none."""
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}
