"""Reads the name of an image in Artifact Registry. Pure."""

import re
from dataclasses import dataclass

_ARTIFACT_REGISTRY = re.compile(
    r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/:@]+)/(?P<package>[^:@]+)"
    r"(?P<version>[:@].+)?"
)
# Repositories of these names hold what was in Container Registry.
_CONTAINER_REGISTRY = re.compile(
    r"(?P<host>(?:(?P<location>us|eu|asia)\.)?gcr\.io)/(?P<project>[^/]+)/(?P<package>[^:@]+)(?P<version>[:@].+)?"
)


@dataclass(frozen=True)
class RegistryImage:
    """An image in Artifact Registry.

    Attributes:
      project: Project of the repository.
      location: Location of the repository.
      repository: Name of the repository.
      package: Name of the image in it.
      version: Tag, or digest with `sha256:`.
    """

    project: str
    location: str
    repository: str
    package: str
    version: str

    @property
    def repository_name(self) -> str:
        """Full name of the repository."""
        return f"projects/{self.project}/locations/{self.location}/repositories/{self.repository}"


def parse(image: str) -> RegistryImage | None:
    """Reads the name of an image.

    Args:
      image: Name as in `docker pull`.

    Returns:
      The image, or None if it is in another registry.
    """
    match = _ARTIFACT_REGISTRY.fullmatch(image)
    repository = match["repository"] if match else ""
    location = match["location"] if match else ""
    if not match:
        match = _CONTAINER_REGISTRY.fullmatch(image)
        if not match:
            return None
        repository, location = match["host"], {"eu": "europe", None: "us"}.get(match["location"], match["location"])
    version = match["version"] or ":latest"
    # With both a tag and a digest, the digest counts.
    version = version.partition("@")[2] or version.removeprefix(":")
    return RegistryImage(match["project"], location, repository, match["package"], version)
