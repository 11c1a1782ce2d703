"""Sends requests about a job of a training to the Kubernetes API.

Requests are repeated while the API does not answer, and a refusal becomes an error that
names the remedy.
"""

import json
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import urllib3
from absl import logging
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.util.ssl_ import create_urllib3_context

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.errors import GoneError, NotFollowedError
from tfx_distribute.components.launchers.kubernetes import reasons
from tfx_distribute.components.launchers.kubernetes.job_kinds import CONTAINER, JobKind
from tfx_distribute.trainer_module.errors import ConfigurationError

_KUEUE, _JOB_UID_LABEL = "kueue.x-k8s.io", "kueue.x-k8s.io/job-uid"
_NO_PERMISSION = re.compile(r"cannot \w+ resource")
_PERMISSION_REMEDY = "apply docs/trainer-role.yaml (docs/kubeflow.md), or name another targets.kubeflow.service_account"

T = TypeVar("T")


def load_config() -> None:
    """Makes clients use this step's account, or else kubectl's configuration."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()


def api_client(configuration: client.Configuration | None = None) -> client.ApiClient:
    """Creates a client that trusts the same certificates as kubectl.

    Python 3.13 requires extensions that the certificates of older clusters lack, for
    example of EKS and MicroK8s. The client has no setting to turn that off
    (https://github.com/kubernetes-client/python/issues/2394). By default, it has the
    access that `load_config` has found.
    """
    api = client.ApiClient(configuration)
    settings = api.rest_client.pool_manager.connection_pool_kw
    context = create_urllib3_context(cert_reqs=settings["cert_reqs"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    settings["ssl_context"] = context  # urllib3 loads ca_certs and cert_file into it
    return api


def has_kind(kind: JobKind) -> bool:
    """Returns True if the cluster has a kind of job, or may have it.

    Raises:
      NoAnswerError: The API server does not answer.
    """
    api = client.CustomObjectsApi(api_client())
    try:
        found = _send(api.get_api_resources, _is_transient, group=kind.group, version=kind.version)
    except ApiException as error:
        return bool(error.status != 404)  # everybody may ask, by default
    return any(resource.name == kind.plural for resource in found.resources)


class JobClient:
    """Sends requests about one job.

    `is_sent` is True once the job may exist by a request of ours.
    """

    def __init__(self, kind: JobKind, name: str, namespace: str):
        self.kind, self.name, self.namespace = kind, name, namespace
        self.is_sent = False
        self._api = api_client()
        self._custom, self._core = client.CustomObjectsApi(self._api), client.CoreV1Api(self._api)
        self._resource = {"group": kind.group, "version": kind.version, "plural": kind.plural, "namespace": namespace}
        self._job = {"name": name, **self._resource}

    def __str__(self) -> str:
        return f"{self.kind.title} {self.name}"

    def create(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """Creates the job and returns it; None if one of this name exists already.

        Raises:
          ConfigurationError: The cluster refuses it.
        """
        self.is_sent = True  # before the answer, in which a signal may come
        try:
            request = self._custom.create_namespaced_custom_object
            created: dict[str, Any] = _send(request, _is_transient, body=manifest, **self._resource)
        except ApiException as error:
            self.is_sent = False
            if error.status == 409:
                return None
            raise self._explain(error) from error
        return created

    def get(self) -> dict[str, Any]:
        """Returns the job with its current status, or raises a GoneError."""
        return dict(self._send(self._custom.get_namespaced_custom_object, **self._job))

    def set_owners(self, owners: list[dict[str, Any]]) -> None:
        """Replaces the job's `ownerReferences`, or raises a GoneError."""
        self.is_sent = True
        body = {"metadata": {"ownerReferences": owners}}
        self._send(self._custom.patch_namespaced_custom_object, body=body, **self._job)

    def delete(self, has_time: bool = True, condition: Callable[[Mapping[str, Any]], bool] = lambda job: True) -> None:
        """Deletes the job and its pods; logs if it cannot.

        If not `has_time`, because this process has to end, each request is sent once.
        Nothing is deleted unless `condition` holds for the job as the cluster has it.
        """
        # In the foreground: what belongs to the job goes first. JobSet would take an
        # old Job for one of a new JobSet of the same name.
        body = client.V1DeleteOptions(propagation_policy="Foreground")
        options = {"_request_timeout": timeouts.LAST_REQUEST_SECONDS, **self._job}

        def delete() -> None:
            if condition(self._custom.get_namespaced_custom_object(**options)):
                logging.info("removing %s", self)
                self._custom.delete_namespaced_custom_object(body=body, **options)

        try:
            retry.call_with_retries(
                delete, "the Kubernetes API server", self._may_pass, timeouts.STOP_SECONDS if has_time else 0.0
            )
        except (ApiException, urllib3.exceptions.HTTPError, NotFollowedError) as error:
            if not (isinstance(error, ApiException) and error.status == 404):
                reason = _message(error) if isinstance(error, ApiException) else error
                logging.warning("cannot delete %s, whose pods may run for another half an hour: %s", self, reason)

    def list_pods(self) -> list[client.V1Pod]:
        """Returns the pods of the job."""
        selector = f"{self.kind.name_label}={self.name}"
        return list(self._send(self._core.list_namespaced_pod, namespace=self.namespace, label_selector=selector).items)

    def list_warnings(self, job: Mapping[str, Any]) -> list[client.CoreV1Event]:
        """Returns the warnings about the job and what was made for it, oldest first.

        They only explain, so that a training goes on if they cannot be listed.
        """
        options = {"field_selector": "type=Warning", "_request_timeout": timeouts.REQUEST_SECONDS}
        events = self._explaining("list events", lambda: self._core.list_namespaced_event(self.namespace, **options).items)
        own = [event for event in events if f"{event.involved_object.name}-".startswith(f"{self.name}-")]
        created = job["metadata"]["creationTimestamp"]
        return [event for event in sorted(own, key=_time) if _time(event) >= created]

    def list_workloads(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns what Kueue made for the job; none if it cannot be listed."""
        uid = job["metadata"]["uid"]

        def request() -> list[dict[str, Any]]:
            groups = client.ApisApi(self._api).get_api_versions(_request_timeout=timeouts.REQUEST_SECONDS).groups
            answer = self._custom.list_namespaced_custom_object(
                _KUEUE,
                next((group.preferred_version.version for group in groups if group.name == _KUEUE), "v1beta1"),
                self.namespace,
                "workloads",
                label_selector=f"{_JOB_UID_LABEL}={uid}",
                _request_timeout=timeouts.REQUEST_SECONDS,
            )
            return list(answer["items"])

        return self._explaining("list workloads", request)

    def read_log(self, pod: str, **options: Any) -> list[str] | None:
        """Returns what a pod printed, each line with its time; None if unreadable now.

        `options` are arguments of `read_namespaced_pod_log` that are not None, such as
        `tail_lines`.
        """
        try:
            answer = self._core.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=CONTAINER,
                timestamps=True,
                _preload_content=False,
                _request_timeout=timeouts.REQUEST_SECONDS,
                **{name: value for name, value in options.items() if value is not None},
            )
        except (ApiException, urllib3.exceptions.HTTPError):
            return None
        return list(answer.data.decode(errors="replace").splitlines())

    def _explaining(self, permission: str, request: Callable[[], list[T]]) -> list[T]:
        """Sends a request whose answer only explains; returns nothing if it fails."""
        try:
            return request()
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            if isinstance(error, ApiException) and error.status == 403:
                words = "this step may not %s in namespace %s, and so cannot say what the training waits for; %s"
                logging.log_first_n(logging.WARNING, words, 1, permission, self.namespace, _PERMISSION_REMEDY)
            return []

    def _send(self, request: Callable[..., Any], **arguments: Any) -> Any:
        """Sends a request about the job, which has been created."""
        try:
            return _send(request, self._may_pass, **arguments)
        except ApiException as error:
            if self._is_gone(error):
                raise GoneError(f"{self} is gone: somebody has deleted it while it was training") from error
            raise self._explain(error) from error

    def _may_pass(self, error: Exception) -> bool:
        """Returns True if another request may succeed.

        Once we have the job, a refusal may pass: an API server that starts again
        refuses everybody until it has read all accounts and roles, and answers 404
        while it does not serve a resource yet. Source:
        https://github.com/kubernetes/kubernetes/issues/65785
        """
        is_refusal = isinstance(error, ApiException) and error.status in (401, 403, 404) and not self._is_gone(error)
        return _is_transient(error) or (self.is_sent and is_refusal)

    def _is_gone(self, error: ApiException) -> bool:
        """Returns True if the API server says that the job does not exist."""
        details = _read_status(error).get("details") or {}
        return error.status == 404 and (details.get("kind"), details.get("name")) == (self.kind.plural, self.name)

    def _explain(self, error: ApiException) -> ConfigurationError:
        """Returns an error that explains a refusal and names the remedy."""
        message = _message(error)
        # Quotas, policies and admission webhooks answer 403 too, with other words.
        if error.status == 403 and _NO_PERMISSION.search(message):
            return ConfigurationError(
                f"the service account of this step may not run a {self.kind.title} in namespace {self.namespace} "
                f"({message}); {_PERMISSION_REMEDY}"
            )
        if error.status == 404 and not message.startswith("namespaces "):
            return ConfigurationError(
                f"the cluster does not have {self.kind.title}s ({message}); {self.kind.install}, or write "
                "targets.kubeflow.training: step"
            )
        return ConfigurationError(f"the cluster refuses {self}: {reasons.with_remedy(message)}")


def _send(request: Callable[..., Any], may_pass: Callable[[Exception], bool], **arguments: Any) -> Any:
    arguments["_request_timeout"] = timeouts.REQUEST_SECONDS
    return retry.call_with_retries(lambda: request(**arguments), "the Kubernetes API server", may_pass)


def _is_transient(error: Exception) -> bool:
    if isinstance(error, ApiException):
        return not error.status or error.status == 429 or error.status >= 500
    return isinstance(error, urllib3.exceptions.HTTPError)


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


def _time(event: client.CoreV1Event) -> str:
    """Returns when an event last happened, as the cluster writes times."""
    # Controllers that write events.k8s.io, such as JobSet 0.11, set `event_time` and,
    # once it happens again, `series`.
    repeated = event.series.last_observed_time if event.series else None
    time = repeated or event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return time.strftime("%Y-%m-%dT%H:%M:%SZ") if time else ""
