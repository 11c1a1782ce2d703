"""Sends a compiled pipeline to Kubeflow Pipelines and follows its run, through `kfp.Client`."""

import contextlib
import io
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import kfp_server_api
import urllib3

from tfx_distribute.trainer_module.errors import ConfigurationError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kfp

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 600.0  # without an answer; the run goes on meanwhile
ENDED = ("SUCCEEDED", "SKIPPED", "FAILED", "ERROR", "CANCELED")
WELL = ("SUCCEEDED", "SKIPPED")


@dataclass(frozen=True)
class Login:
    """Where the API is and who asks; names and defaults are those of `kfp.Client`.

    Attributes:
      host: Address of the API; None for what kfp finds.
      namespace: Namespace of the user's runs, where there are several users.
      client_id: Client id of Identity-Aware Proxy.
      other_client_id: Client id that auth codes are obtained with.
      other_client_secret: Its secret.
      existing_token: A token that is there already.
    """

    host: str | None = None
    namespace: str | None = None
    client_id: str | None = None
    other_client_id: str | None = None
    other_client_secret: str | None = None
    existing_token: str | None = None


@dataclass(frozen=True)
class Submitted:
    """A run.

    Attributes:
      run_id: Its id.
      address: Where a browser shows it.
    """

    run_id: str
    address: str


class Pipelines:
    """An installation of Kubeflow Pipelines.

    Args:
      login: Where it is, and who asks.

    Raises:
      ConfigurationError: It does not answer, or knows nobody of that name.
    """

    def __init__(self, login: Login):
        self._login = login
        given = {name: value for name, value in vars(login).items() if value is not None}
        with self._explained(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._client = kfp.Client(**given)
            self._client.get_kfp_healthz(sleep_duration=1)

    def submit(
        self,
        name: str,
        package: str,
        arguments: Mapping[str, Any],
        pipeline_root: str,
        experiment: str | None = None,
        run_name: str | None = None,
        service_account: str | None = None,
        enable_caching: bool | None = None,
    ) -> Submitted:
        """Uploads a pipeline, as another version where it is there already, and runs it.

        Args:
          name: Name of the pipeline.
          package: The compiled pipeline, YAML.
          arguments: Values of its parameters; others take their defaults.
          pipeline_root: Address that artifacts are written under.
          experiment: Name of the experiment; default `Default`.
          run_name: Name of the run; default that of the pipeline's version.
          service_account: Kubernetes service account; default the installation's.
          enable_caching: False has all steps run; None does what each step says.

        Raises:
          ConfigurationError: The API refuses it.
        """
        version = f"{name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
        said = io.StringIO()
        with self._explained(), contextlib.redirect_stdout(said), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.yaml"
            file.write_text(package, encoding="utf-8")
            pipeline_id = self._client.get_pipeline_id(name)
            if pipeline_id is None:
                pipeline_id = self._client.upload_pipeline(
                    str(file), pipeline_name=name, namespace=self._login.namespace
                ).pipeline_id
                (uploaded, *_) = self._client.list_pipeline_versions(pipeline_id).pipeline_versions
            else:
                uploaded = self._client.upload_pipeline_version(str(file), version, pipeline_id=pipeline_id)
            made = self._client.create_experiment(experiment or "Default", namespace=self._login.namespace)
            run = self._client.run_pipeline(
                experiment_id=made.experiment_id,
                job_name=run_name or version,
                params=dict(arguments),
                pipeline_id=pipeline_id,
                version_id=uploaded.pipeline_version_id,
                pipeline_root=pipeline_root,
                enable_caching=enable_caching,
                service_account=service_account,
            )
        address = re.search(r"Run details: (\S+)", said.getvalue())  # kfp alone knows the address of its pages
        return Submitted(run.run_id, address[1] if address else run.run_id)

    def wait(self, run_id: str, told: Callable[[str], None]) -> str:
        """Follows a run to its end.

        Args:
          run_id: Id of the run.
          told: Called with a line on each step that changes its state.

        Returns:
          How it ended, one of `ENDED`.

        Raises:
          ConfigurationError: The API does not answer any more.
        """
        seen: dict[str, str] = {}
        while True:
            run = self._run(run_id)
            for task in (run.run_details.task_details or []) if run.run_details else []:
                if task.state and task.display_name and seen.get(task.display_name) != task.state:
                    seen[task.display_name] = task.state
                    told(f"{task.display_name:28} {task.state.lower()}")
            if run.state in ENDED:
                if run.error and run.state not in WELL:
                    told(str(run.error.message))
                return str(run.state)
            time.sleep(POLL_SECONDS)

    def _run(self, run_id: str) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._client.get_run(run_id)
            except (kfp_server_api.ApiException, urllib3.exceptions.HTTPError) as error:
                status = getattr(error, "status", None)
                if (status and 400 <= status < 500 and status != 429) or time.monotonic() > deadline:
                    with self._explained():
                        raise
                time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def _explained(self) -> Any:
        """Has what the client raises say what to do."""
        host = self._login.host or "the default address of kfp"
        try:
            yield
        except kfp_server_api.ApiException as error:
            told = (error.body or error.reason or "").strip()
            if error.status in (401, 403):
                raise ConfigurationError(
                    f"--host: {host} does not let you in ({error.status}: {told}); see the options --existing-token, "
                    "--iap-client-id and --namespace"
                ) from error
            raise ConfigurationError(f"Kubeflow Pipelines at {host} refuses: {error.status}: {told}") from error
        except (urllib3.exceptions.HTTPError, TimeoutError, OSError) as error:
            raise ConfigurationError(
                f"--host: Kubeflow Pipelines does not answer at {host} ({error}); write the address of its API, such as "
                "http://localhost:8080 after `kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80`"
            ) from error
