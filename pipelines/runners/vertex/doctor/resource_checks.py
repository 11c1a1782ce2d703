"""Checks that the image, the key and others of a pipeline file exist. Pure."""

from collections.abc import Iterator, Sequence

from tfx_distribute.pipelines.runners.finding import Finding
from tfx_distribute.pipelines.runners.vertex import image_name
from tfx_distribute.pipelines.runners.vertex.doctor.check import Check, failed, passed, unknown
from tfx_distribute.pipelines.runners.vertex.doctor.rest import Answer, Request, quoted
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings


def image(name_of_image: str) -> Check:
    """Checks that an image is in Artifact Registry.

    Args:
      name_of_image: Name as in `docker pull`.
    """
    name = f"image {name_of_image}"
    found = image_name.parse(name_of_image)
    if found is None:
        finding = Finding(name, "unknown", "is not in Artifact Registry; only the run shows whether Vertex AI can pull it")
        return Check(name, (), lambda answers: finding)
    kind = "versions" if found.version.startswith("sha256:") else "tags"
    url = f"https://artifactregistry.googleapis.com/v1/{found.repository_name}/packages/{quoted(found.package)}"

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer.is_ok:
            return passed(name, "exists")
        if answer.code == 404:
            remedy = f"build and push it (`docker push {name_of_image}`), or correct targets.vertex.image"
            return failed(name, "does not exist", remedy)
        return unknown(name, answer, "roles/artifactregistry.reader")

    return Check(name, (Request(f"{url}/{kind}/{found.version}"),), judge)


def named_resources(settings: VertexSettings) -> Iterator[Check]:
    """Yields checks of the key, TensorBoard instance, reservation and network."""
    if key := settings.encryption_spec_key_name:
        yield _exists("encryption_spec_key_name", key, f"https://cloudkms.googleapis.com/v1/{key}")
    if tensorboard := settings.tensorboard:
        host = f"https://{settings.region}-aiplatform.googleapis.com"
        yield _exists("tensorboard", tensorboard, f"{host}/v1/{tensorboard}")
    if settings.reservation:
        yield _reservation(settings.reservation)
    if settings.network:
        yield _network(settings.network)


def _exists(setting: str, resource: str, url: str) -> Check:
    name = f"{setting} {resource}"

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer.is_ok:
            return passed(name, "exists")
        if answer.code == 404:
            return failed(name, "does not exist", f"correct targets.vertex.{setting}, or create it")
        return unknown(name, answer)

    return Check(name, (Request(url),), judge)


def _reservation(reservation: str) -> Check:
    """Checks a reservation, and that Vertex AI may take machines from it.

    Source: https://cloud.google.com/vertex-ai/docs/training/use-reservations
    """
    existence = _exists("reservation", reservation, f"https://compute.googleapis.com/compute/v1/{reservation}")

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        policy = answer.document.get("reservationSharingPolicy", {})
        if answer.is_ok and policy.get("serviceShareType") != "ALLOW_ALL":
            remedy = "create one with `--reservation-sharing-policy=ALLOW_ALL`"
            return failed(existence.name, "does not let Vertex AI take machines from it", remedy)
        return existence.judge(answers)

    return Check(existence.name, existence.requests, judge)


def _network(network: str) -> Check:
    """Checks that a network is peered with Google's services.

    Source: https://cloud.google.com/vertex-ai/docs/general/vpc-peering
    """
    name = f"network {network}"
    url = "https://servicenetworking.googleapis.com/v1/services/servicenetworking.googleapis.com/connections"

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer.is_ok and answer.document.get("connections"):
            return passed(name, "is peered with Google's services")
        if answer.is_ok:
            remedy = "run `gcloud services vpc-peerings connect --service=servicenetworking.googleapis.com`, or leave it out"
            return failed(name, "is not peered with Google's services", remedy)
        return unknown(name, answer, "servicenetworking.services.get")

    return Check(name, (Request(f"{url}?network={network}"),), judge)
