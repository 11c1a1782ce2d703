"""Installs the plugin under the import name `tfx_distribute`.

Three folders at the top level of the repository become packages below that name, so
that they never shadow a user's own `pipelines/` or `components/` folder.
"""

import re
from pathlib import Path

from setuptools import Extension, find_packages, setup

ROOT = Path(__file__).parent

# Read, not imported: the packages below are not importable before they are installed.
(VERSION,) = re.findall(
    r'^__version__ = "(.+)"$', (ROOT / "src" / "tfx_distribute" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE
)

# `components/` -> `tfx_distribute.components`, and so on for every package below them.
MAPPED = ("components", "pipelines", "trainer_module")

# The examples are files that `tfx-distribute init` copies, not modules of the package.
PACKAGES = ["tfx_distribute", "tfx_distribute.examples"] + [
    f"tfx_distribute.{package}" for top in MAPPED for package in [top, *(f"{top}.{name}" for name in find_packages(top))]
]

# As the extra of TFX 1.21, which is empty on Python >= 3.12. With TFX 1.16 and its
# protobuf, pip arrives at kfp 2.5.
KFP = ["kfp>=2.5,<2.17", "kfp-pipeline-spec<2.17"]

setup(
    name="tfx-distribute",
    version=VERSION,
    description="Distributed training as a parameter of a TFX pipeline.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["tfx", "tensorflow", "tf.distribute", "distributed training", "kubeflow", "vertex ai", "machine learning"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12, 13)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    packages=PACKAGES,
    package_dir={
        "tfx_distribute": "src/tfx_distribute",
        **{f"tfx_distribute.{top}": top for top in (*MAPPED, "examples")},
    },
    package_data={
        "tfx_distribute": ["py.typed"],
        "tfx_distribute.components.report": ["templates/*"],
        "tfx_distribute.examples": ["*/*.py", "*/*.yaml"],
        "tfx_distribute.pipelines.starter": ["templates/*", "templates/.*"],
        "": ["*.pyi"],
    },
    # Not a Python module, but a library that is loaded into training processes. Where
    # it cannot be built, training works without it and warns (see docs/security.md).
    ext_modules=[
        Extension(
            "tfx_distribute.components.launchers.local._loopback",
            ["components/launchers/local/_loopback.c"],
            libraries=["dl"],
            optional=True,
        )
    ],
    install_requires=[
        # With Python 3.10, the newest that this machine can run: TFX 1.21 has no
        # packages for glibc < 2.39. TFX 1.16 does not run on a newer Python, and uv
        # would install it all the same.
        "tfx>=1.16,<1.22,!=1.17.*; python_version < '3.11'",
        "tfx>=1.21,<1.22; python_version >= '3.11'",
        # TFX's Trainer imports it, and TFX 1.21 does not require it.
        "tensorboard",
        # The newest versions that this package has been tested with. tfx_bsl 1.16 needs
        # the dill extra of beam >= 2.69, and does not require it.
        "apache-beam[gcp,dill]<=2.74; python_version < '3.11'",
        "apache-beam[gcp]<=2.77; python_version >= '3.11'",
        # TFMA 0.52 fails with newer ones on metrics that are arrays of one number.
        "numpy<2.4",
        # Newer versions print a FutureWarning at every import on Python 3.10.
        "google-api-core<2.28; python_version < '3.11'",
        "google-auth<2.45; python_version < '3.11'",
        "google-cloud-aiplatform<1.114; python_version < '3.11'",
        # TFX runs `python -m pip` and `setup.py bdist_wheel` for user module files, in
        # its own environment.
        "setuptools<81",
        "pip",
        "wheel",
        "apprise>=1.9",
        "click>=8.1",
        "google-crc32c>=1.5",
        "jinja2>=3.1",
        "prometheus-client>=0.19",
        "pydantic>=2.7",
        "pyyaml>=6",
        "rich>=13",
        "typing-extensions>=4.4",
    ],
    extras_require={
        "kfp": KFP,
        "vertex": [*KFP, "google-cloud-aiplatform"],
        "test": [
            "build",
            "hypothesis",
            "jsonschema",
            "mypy",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
            "types-PyYAML",
            "types-jsonschema",
        ],
    },
    entry_points={
        "console_scripts": [
            "tfx-distribute = tfx_distribute.pipelines.cli.main:main",
            "tfx-distribute-beam-worker = tfx_distribute.components.beam.worker:main",
        ]
    },
)
