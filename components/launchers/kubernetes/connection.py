"""Connects to the cluster that this step runs in."""

import ssl

import urllib3
from kubernetes import client, config
from urllib3.util.ssl_ import create_urllib3_context
from urllib3.util.ssl_match_hostname import CertificateError


def load_config() -> None:
    """Makes clients use this step's account, or else kubectl's configuration."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()


def api_client() -> client.ApiClient:
    """Makes a client that trusts the certificates that kubectl trusts.

    Python 3.13 wants extensions in them that those of older clusters lack, such as of
    EKS and MicroK8s, and the client has no setting for it
    (https://github.com/kubernetes-client/python/issues/2394).

    ```python
    core = client.CoreV1Api(api_client())
    ```
    """
    made = client.ApiClient()
    settings = made.rest_client.pool_manager.connection_pool_kw
    context = create_urllib3_context(cert_reqs=settings["cert_reqs"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    settings["ssl_context"] = context  # which gets the certificates of the other settings
    return made


def is_untrusted(error: Exception) -> bool:
    """Returns True for an error about the server's certificate."""
    reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
    return isinstance(reason, urllib3.exceptions.SSLError) and isinstance(
        next(iter(reason.args), None), ssl.SSLCertVerificationError | CertificateError
    )
