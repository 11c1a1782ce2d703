"""Requests about a TFJob to the Kubernetes API: patient ones, whose refusals say what to do."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import urllib3
from absl import logging
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.tfjob import manifest as tfjob_manifest
from tfx_distribute.components.launchers.tfjob import status as tfjob_status
from tfx_distribute.components.launchers.tfjob.pod_log import LAST_LINES
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

POLL_SECONDS = 2.0
REQUEST_SECONDS = 30.0  # for one answer
DELETE_SECONDS = 5.0  # for the last one, of whoever is told to end
JOB_LABEL = "training.kubeflow.org/job-name"

T = TypeVar("T")


class TFJobClient:
    """Requests about one TFJob.

    Attributes:
      name: Its name.
      namespace: Its namespace.
    """

    def __init__(self, name: str, namespace: str):
        self.name, self.namespace = name, namespace
        self._custom, self._core = client.CustomObjectsApi(), client.CoreV1Api()
        self._which = {
            "group": tfjob_manifest.GROUP,
            "version": tfjob_manifest.VERSION,
            "plural": tfjob_manifest.PLURAL,
            "namespace": namespace,
        }

    def create(self, manifest: dict[str, Any], anew: bool = False) -> bool:
        """Creates it, unless an earlier try of the step has left one that goes on or has succeeded.

        Args:
          manifest: What to make it from.
          anew: Whether one that has succeeded is to be made again.

        Returns:
          Whether it is still to be followed.
        """
        try:
            _patiently(
                lambda: self._custom.create_namespaced_custom_object(
                    body=manifest, _request_timeout=REQUEST_SECONDS, **self._which
                )
            )
            logging.info("created TFJob %s in namespace %s", self.name, self.namespace)
        except ApiException as error:
            if error.status != 409:
                raise _explained(error, self.name, self.namespace) from error
            return self._take_over(manifest, anew)
        return True

    def _take_over(self, manifest: dict[str, Any], anew: bool) -> bool:
        """Does with one that is there already what `create` says."""
        found = self.get()
        condition = tfjob_status.condition(found)
        if condition == "Succeeded" and not anew:
            logging.info("TFJob %s of an earlier try has succeeded", self.name)
            return False
        if "deletionTimestamp" in found["metadata"] or condition in ("Failed", "Succeeded"):
            logging.info("TFJob %s of an earlier try is over; creating it anew", self.name)
            self.replace(manifest)
            return True
        # It belongs to the pod of the earlier try, and would go with that.
        owners = {"ownerReferences": manifest["metadata"].get("ownerReferences", [])}
        self._of_it(
            lambda: self._custom.patch_namespaced_custom_object(
                name=self.name, body={"metadata": owners}, _request_timeout=REQUEST_SECONDS, **self._which
            )
        )
        logging.info("TFJob %s goes on already; following it", self.name)
        return True

    def replace(self, manifest: dict[str, Any]) -> None:
        """Removes it, and creates it anew when it is gone."""
        self.delete()
        deadline = time.monotonic() + retry.PATIENCE_SECONDS
        with contextlib.suppress(TrainingError):  # it is gone
            while time.monotonic() < deadline:
                self.get()
                time.sleep(POLL_SECONDS)
        self.create(manifest)

    def get(self) -> dict[str, Any]:
        """What the cluster knows of it."""
        return self._of_it(
            lambda: self._custom.get_namespaced_custom_object(
                name=self.name, _request_timeout=REQUEST_SECONDS, **self._which
            )
        )

    def _of_it(self, request: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Sends a request about the one that is there."""
        try:
            return _patiently(request)
        except ApiException as error:
            if error.status == 404:
                raise TrainingError(f"TFJob {self.name} is gone: somebody has deleted it while it was training") from error
            raise _explained(error, self.name, self.namespace) from error

    def delete(self) -> None:
        """Removes it and its pods."""
        # One try: whoever is told to end has no time. The pod that owns it takes it along in any case.
        with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
            self._custom.delete_namespaced_custom_object(
                name=self.name, propagation_policy="Background", _request_timeout=DELETE_SECONDS, **self._which
            )

    def pods(self) -> list[client.V1Pod]:
        """Its pods."""
        selector = f"{JOB_LABEL}={self.name}"
        try:
            found = _patiently(
                lambda: self._core.list_namespaced_pod(
                    self.namespace, label_selector=selector, _request_timeout=REQUEST_SECONDS
                )
            )
            return list(found.items)
        except ApiException as error:
            raise _explained(error, self.name, self.namespace) from error

    def last_lines(self, pod: str) -> list[str]:
        """The last that a pod printed."""
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


def _patiently(request: Callable[[], T]) -> T:
    return retry.call_with_retries(request, "the Kubernetes API server", _passes)


def _passes(error: Exception) -> bool:
    if isinstance(error, ApiException):
        return not error.status or error.status == 429 or error.status >= 500
    return isinstance(error, urllib3.exceptions.HTTPError)


def _explained(error: ApiException, name: str, namespace: str) -> ConfigurationError:
    """What an answer means to a person."""
    told = _message(error)
    if error.status == 403 and "admission webhook" not in told:  # by which the operator refuses what it is not made for
        return ConfigurationError(
            f"the service account of this step may not run a TFJob in namespace {namespace} ({told}); apply what "
            "`tfx-distribute manifests` prints, or name another targets.kubeflow.service_account"
        )
    if error.status == 404:
        return ConfigurationError(
            f"the cluster knows no TFJob ({told}); install Kubeflow's Training Operator 1.9, or write "
            "targets.kubeflow.training: step"
        )
    return ConfigurationError(f"the cluster refuses TFJob {name}: {told}")


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"
