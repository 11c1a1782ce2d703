"""Runs shell scripts of `gcloud` commands against the stand-in of a project."""

import subprocess
import tempfile
from pathlib import Path

from vertex_project import Project

_PRELUDE = """set -eu
gcloud() {
  case "$1 $2" in
    "config get-value") echo "$SUBMITTER_EMAIL" ;;
    "projects describe") echo "$NUMBER" ;;
    *) printf '%s\\n' "$@" "" >> "$LOG" ;;
  esac
}
"""
# Words before the resource -> kind of resource, and options that the command needs.
_COMMANDS = {
    ("projects",): ("projects", {"condition"}),
    ("storage", "buckets"): ("buckets", set()),
    ("iam", "service-accounts"): ("serviceAccounts", set()),
    ("artifacts", "repositories"): ("repositories", {"project", "location"}),
    ("kms", "keys"): ("keys", {"project", "location", "keyring"}),
}


def list_commands(script: str, project: Project, submitter: str) -> list[list[str]]:
    """Runs a script in a shell; returns the words of each `gcloud` that changes roles.

    Args:
      script: The script.
      project: The project that it asks about.
      submitter: E-mail address of the person who is logged in.
    """
    with tempfile.TemporaryDirectory(prefix="gcloud-") as folder:
        log = Path(folder, "log")
        log.touch()
        environment = {"LOG": str(log), "NUMBER": project.number, "SUBMITTER_EMAIL": submitter}
        subprocess.run(["/bin/bash", "-c", _PRELUDE + script], env=environment, check=True, timeout=30, capture_output=True)
        return [command.split("\n") for command in log.read_text().split("\n\n") if command]


def apply(command: list[str], project: Project) -> None:
    """Carries out one `gcloud ... add-iam-policy-binding`.

    Raises:
      ValueError: `gcloud` does not have this command, or a word of it is wrong.
    """
    where = command.index("add-iam-policy-binding")
    kind, needed = _COMMANDS[tuple(command[:where])]
    options = dict(word.removeprefix("--").split("=", 1) for word in command[where + 1 :] if word.startswith("--"))
    (name,) = (word for word in command[where + 1 :] if not word.startswith("--"))
    if set(options) != {"member", "role"} | needed or ":" not in options["member"]:
        raise ValueError(f"gcloud refuses {command}")
    if kind == "repositories":
        name = f"projects/{options['project']}/locations/{options['location']}/repositories/{name}"
    if kind == "keys":
        place = f"projects/{options['project']}/locations/{options['location']}"
        name = f"{place}/keyRings/{options['keyring']}/cryptoKeys/{name}"
    if kind == "buckets" and name.removeprefix("gs://") not in project.buckets:
        raise ValueError(f"{name} not found: 404.")
    project.iam.grant(f"{kind}/{name.removeprefix('gs://')}", options["role"], options["member"])


def run_script(script: str, project: Project, submitter: str = "person@example.com") -> None:
    """Runs a script of `gcloud` commands; see `list_commands`."""
    for command in list_commands(script, project, submitter):
        apply(command, project)
