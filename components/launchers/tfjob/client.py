"""Sends requests about a TFJob to the Kubernetes API.

Requests are repeated while the API does not answer, and a refusal becomes an error that
names the remedy.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import urllib3
from absl import logging
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.tfjob import manifest as tfjob_manifest
from tfx_distribute.components.launchers.tfjob import permissions, remedies
from tfx_distribute.components.launchers.tfjob.pod_log import LAST_LINES
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

REQUEST_SECONDS = 30.0  # for one answer
DELETE_SECONDS = 5.0  # for the last request of a launcher that has to end
# For an admission webhook to answer: the operator's pod may be starting again.
WEBHOOK_SECONDS = 45.0
JOB_LABEL = "training.kubeflow.org/job-name"

_NO_PERMISSION = re.compile(r"cannot \w+ resource")
_PERMISSION_REMEDY = "apply what `tfx-distribute manifests` prints, or name another targets.kubeflow.service_account"

T = TypeVar("T")


class TFJobClient:
    """Sends requests about one TFJob.

    Attributes:
      name: Name of the TFJob.
      namespace: Its namespace.
    """

    def __init__(self, name: str, namespace: str):
        self.name, self.namespace = name, namespace
        self._custom, self._core = client.CustomObjectsApi(), client.CoreV1Api()
        self._lists_events = True
        self._resource = {
            "group": tfjob_manifest.GROUP,
            "version": tfjob_manifest.VERSION,
            "plural": tfjob_manifest.PLURAL,
            "namespace": namespace,
        }

    def check_permissions(self) -> None:
        """Checks that this step may do what following a TFJob takes.

        Raises:
          ConfigurationError: It may not; the message has all that is missing.
        """
        missing = [str(each) for each in permissions.permissions() if not self._is_allowed(each)]
        if missing == [str(permissions.LIST_EVENTS)]:
            self._warn_of_no_events()
        elif missing:
            raise ConfigurationError(
                f"the service account of this step may not run a TFJob in namespace {self.namespace}: it may not "
                f"{', '.join(missing)}; {_PERMISSION_REMEDY}"
            )

    def create(self, manifest: dict[str, Any]) -> bool:
        """Creates the TFJob.

        Returns:
          True if it was created, False if one of this name exists already.

        Raises:
          ConfigurationError: The cluster refuses it, or does not know all of it.
        """
        deadline = time.monotonic() + WEBHOOK_SECONDS

        def is_transient(error: Exception) -> bool:
            return _is_transient(error) and not (_is_webhook_failure(error) and time.monotonic() > deadline)

        try:
            created = retry.call_with_retries(
                lambda: self._custom.create_namespaced_custom_object(
                    body=manifest, _request_timeout=REQUEST_SECONDS, **self._resource
                ),
                "the Kubernetes API server",
                is_transient,
            )
        except ApiException as error:
            if error.status == 409:
                return False
            raise self._explain(error) from error
        dropped = tfjob_manifest.find_dropped(manifest["spec"], created["spec"], "spec")
        if dropped:
            self.delete()
            raise ConfigurationError(
                f"the TFJobs of this cluster have no {', '.join(dropped)}; install Kubeflow's Training Operator 1.9"
            )
        return True

    def get(self) -> dict[str, Any]:
        """Returns the TFJob with its current status.

        Raises:
          TrainingError: It does not exist.
        """
        return self._call_for_existing(
            lambda: self._custom.get_namespaced_custom_object(
                name=self.name, _request_timeout=REQUEST_SECONDS, **self._resource
            )
        )

    def set_owners(self, owners: list[dict[str, Any]]) -> None:
        """Replaces the owners of the TFJob.

        Args:
          owners: The new `ownerReferences`.

        Raises:
          TrainingError: The TFJob does not exist.
        """
        body = {"metadata": {"ownerReferences": owners}}
        self._call_for_existing(
            lambda: self._custom.patch_namespaced_custom_object(
                name=self.name, body=body, _request_timeout=REQUEST_SECONDS, **self._resource
            )
        )

    def delete(self) -> None:
        """Deletes the TFJob and its pods, if the API answers."""
        # One request only: a launcher that has to end has no time for more. Kubernetes
        # deletes the TFJob with the pod that owns it in any case.
        with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
            self._custom.delete_namespaced_custom_object(
                name=self.name, propagation_policy="Background", _request_timeout=DELETE_SECONDS, **self._resource
            )

    def list_pods(self) -> list[client.V1Pod]:
        """Returns the pods of the TFJob."""
        selector = f"{JOB_LABEL}={self.name}"
        try:
            pods = _call_kubernetes(
                lambda: self._core.list_namespaced_pod(
                    self.namespace, label_selector=selector, _request_timeout=REQUEST_SECONDS
                )
            )
        except ApiException as error:
            raise self._explain(error) from error
        return list(pods.items)

    def list_events(self, uid: str) -> list[client.CoreV1Event] | None:
        """Returns the events about an object; None if they cannot be listed now.

        They only explain, so that a training goes on without them.
        """
        if not self._lists_events:
            return None
        try:
            events = self._core.list_namespaced_event(
                self.namespace, field_selector=f"involvedObject.uid={uid}", _request_timeout=REQUEST_SECONDS
            )
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            if isinstance(error, ApiException) and error.status == 403:
                self._warn_of_no_events()
            return None
        return list(events.items)

    def _warn_of_no_events(self) -> None:
        self._lists_events = False
        logging.warning(
            "this step may not list events in namespace %s, and so cannot say why pods are refused; apply what "
            "`tfx-distribute manifests` prints",
            self.namespace,
        )

    def last_lines(self, pod: str) -> list[str]:
        """Returns the last lines that a pod printed; none if its log cannot be read."""
        try:
            answer = self._core.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=tfjob_manifest.CONTAINER,
                tail_lines=LAST_LINES,
                _preload_content=False,
                _request_timeout=REQUEST_SECONDS,
            )
        except (ApiException, urllib3.exceptions.HTTPError):
            return []
        lines: list[str] = answer.data.decode(errors="replace").rstrip().splitlines()
        return lines

    def _is_allowed(self, permission: permissions.Permission) -> bool:
        """Returns True if this step has a permission, or cannot ask for it."""
        review = permissions.make_review(permission, self.namespace)
        try:
            answer = _call_kubernetes(
                lambda: client.AuthorizationV1Api().create_self_subject_access_review(
                    review, _request_timeout=REQUEST_SECONDS
                )
            )
        except ApiException:  # everybody may ask, by default
            return True
        return bool(answer.status.allowed)

    def _call_for_existing(self, request: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Sends a request about a TFJob that has been created."""
        try:
            return _call_kubernetes(request)
        except ApiException as error:
            if error.status == 404:
                raise TrainingError(f"TFJob {self.name} is gone: somebody has deleted it while it was training") from error
            raise self._explain(error) from error

    def _explain(self, error: ApiException) -> ConfigurationError:
        """Returns an error that explains a refusal and names the remedy."""
        message = _message(error)
        # Quotas, policies and admission webhooks answer 403 too, with other words.
        if error.status == 403 and _NO_PERMISSION.search(message):
            return ConfigurationError(
                f"the service account of this step may not run a TFJob in namespace {self.namespace} ({message}); "
                f"{_PERMISSION_REMEDY}"
            )
        if error.status == 404 and message.startswith("namespaces "):
            return ConfigurationError(
                f"the cluster has no namespace {self.namespace} ({message}); create it, or run in another"
            )
        if error.status == 404:
            return ConfigurationError(
                f"the cluster does not have TFJobs ({message}); install Kubeflow's Training Operator 1.9, or write "
                "targets.kubeflow.training: step"
            )
        if _is_webhook_failure(error):
            return ConfigurationError(
                f"the cluster cannot check TFJob {self.name} ({message}); see whether the pods of Kubeflow's Training "
                "Operator run, usually in namespace kubeflow"
            )
        return ConfigurationError(f"the cluster refuses TFJob {self.name}: {remedies.with_remedy(message)}")


def _call_kubernetes(request: Callable[[], T]) -> T:
    """Sends a request, repeatedly while the API server does not answer."""
    return retry.call_with_retries(request, "the Kubernetes API server", _is_transient)


def _is_transient(error: Exception) -> bool:
    """Returns True for an error after which another request may succeed."""
    if isinstance(error, ApiException):
        return not error.status or error.status == 429 or error.status >= 500
    return isinstance(error, urllib3.exceptions.HTTPError)


def _is_webhook_failure(error: Exception) -> bool:
    """Returns True if an admission webhook for TFJobs does not answer."""
    return isinstance(error, ApiException) and error.status == 500 and "failed calling webhook" in _message(error)


def _message(error: ApiException) -> str:
    """Returns the API server's own words, where its answer has any."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"
