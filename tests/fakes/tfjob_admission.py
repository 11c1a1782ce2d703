"""Checks a TFJob as a cluster does before it accepts it.

Covers the API server, the resource's schema and the Training Operator's webhook.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import yaml

Document = dict[str, Any]

CRD = Path(__file__).resolve().parents[3] / "shared" / "schemas" / "kubeflow.org_tfjobs.yaml"
REPLICA_TYPES = ("Chief", "Evaluator", "Master", "PS", "Worker")
CONTAINER = "tensorflow"  # the name that the operator requires
_DNS_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_DNS_1123 = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"


def metadata_errors(meta: Document) -> list[str]:
    """Returns the API server's errors about an object's metadata."""
    errors, name = [], meta.get("name", "")
    if not name:
        errors.append("metadata.name: Required value: name or generateName is required")
    elif not re.fullmatch(_DNS_1123, name):
        rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        errors.append(f'metadata.name: Invalid value: "{name}": {rule}')
    for value in meta.get("labels", {}).values():
        if len(value) > 63:
            errors.append(f'metadata.labels: Invalid value: "{value}": must be no more than 63 characters')
        elif not re.fullmatch(_LABEL, value):
            rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
            errors.append(f'metadata.labels: Invalid value: "{value}": {rule}')
    for reference in meta.get("ownerReferences", []):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(key):
                rule = "version must not be empty" if key == "apiVersion" else "must not be empty"
                errors.append(f'metadata.ownerReferences.{key}: Invalid value: "": {rule}')
    if sum(bool(reference.get("controller")) for reference in meta.get("ownerReferences", [])) > 1:
        errors.append("metadata.ownerReferences: Invalid value: Only one reference can have Controller set to true")
    return errors


@functools.cache
def _schema() -> jsonschema.Draft202012Validator:
    document = yaml.load(CRD.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    version = next(version for version in document["spec"]["versions"] if version["name"] == "v1")
    schema = _without_more(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # checked apart from the schema
    return jsonschema.Draft202012Validator(schema)


def _without_more(schema: Any) -> Any:
    """Returns a structural schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [_without_more(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _without_more(part) for key, part in schema.items()}
    if schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string") is True:
        schema["type"] = ["integer", "string"]
    return {"anyOf": [{"type": "null"}, schema]} if schema.get("nullable") is True else schema


def schema_errors(job: Document) -> list[str]:
    """Returns the errors of a TFJob against its schema."""
    errors = []
    for error in sorted(_schema().iter_errors(job), key=lambda error: error.json_path):
        path = error.json_path.removeprefix("$").removeprefix(".")
        if error.validator == "additionalProperties":
            unknown = set(error.instance) - set(error.schema.get("properties", {}))
            errors += [f'unknown field "{path}.{key}"' for key in sorted(unknown)]
        elif error.validator == "required":
            errors.append(f"{path}: Required value: {error.message}")
        else:
            errors.append(f"{path}: Invalid value: {json.dumps(error.instance)}: {error.message}")
    known = {kind.lower() for kind in REPLICA_TYPES}
    replicas = (job.get("spec") or {}).get("tfReplicaSpecs") or {}
    return errors + [f'spec.tfReplicaSpecs: Unsupported value: "{kind}"' for kind in replicas if kind.lower() not in known]


def webhook_errors(job: Document) -> list[str]:
    """Returns the errors of the Training Operator's webhook about a TFJob.

    Source: https://github.com/kubeflow/training-operator/blob/release-1.9/pkg/webhooks/tensorflow/tfjob_webhook.go
    """
    errors, name, spec = [], job["metadata"]["name"], job.get("spec") or {}
    if len(name) > 63:
        errors.append(f'metadata.name: Invalid value: "{name}": should match: must be no more than 63 characters')
    elif not re.fullmatch(_DNS_1035, name):
        rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-'"
        errors.append(f'metadata.name: Invalid value: "{name}": should match: {rule}')
    manager = (spec.get("runPolicy") or {}).get("managedBy")
    if manager not in (None, "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"):
        errors.append(f'spec.runPolicy.managedBy: Unsupported value: "{manager}"')
    if spec.get("tfReplicaSpecs") is None:
        errors.append("spec.tfReplicaSpecs: Required value: must be required")
    replicas = spec.get("tfReplicaSpecs") or {}
    for kind, replica in replicas.items():
        path = f"spec.tfReplicaSpecs[{kind}].template.spec.containers"
        containers = replica.get("template", {}).get("spec", {}).get("containers") or []
        if not containers:
            errors.append(f"{path}: Required value: must be specified")
        for index, container in enumerate(containers):
            if not container.get("image"):
                errors.append(f"{path}[{index}].image: Required value: must be required")
        if CONTAINER not in [container.get("name") for container in containers]:
            errors.append(f"{path}: Required value: must have at least one container with name {CONTAINER}")
    if {"Chief", "Master"} <= set(replicas):
        errors.append("spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role")
    return errors
