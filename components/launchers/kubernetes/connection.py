"""Connects to the cluster that this step runs in."""

import ssl

from kubernetes import client, config
from urllib3.util.ssl_ import create_urllib3_context


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
    (https://github.com/kubernetes-client/python/issues/2394).

    ```python
    core = client.CoreV1Api(api_client())
    ```

    By default, it has the access that `load_config` has found.
    """
    api = client.ApiClient(configuration)
    settings = api.rest_client.pool_manager.connection_pool_kw
    context = create_urllib3_context(cert_reqs=settings["cert_reqs"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    settings["ssl_context"] = context  # urllib3 loads ca_certs and cert_file into it
    return api
