IMAGE = registry.example.com/team/digits:1
PYTHON = .venv/bin/python
# A parallel process of pytest: a fork of one that has imported TFX.
FORK = popen//python=.venv/bin/python tests/fakes/forked_python.py
# One process more than cores, as some tests wait.
PYTEST = .venv/bin/pytest -q --tx "$$((1 + $$(getconf _NPROCESSORS_ONLN)))*$(FORK)" --dist worksteal --durations=10 --ignore tests/cluster

.PHONY: env demo test test-line lint tests unit e2e cluster-test gpu-test gpu-bench soak bench lock generated models site dist release

# All targets below need the environment. This takes no time if nothing has changed.
env:
	@./bootstrap.sh

# Runs the digits example on two workers, up to a pushed model, and asks the model.
demo: env
	.venv/bin/tfx-distribute run examples/digits/pipeline.yaml -p strategy=multi_worker_mirrored -p num_workers=2 -p accelerator_type=cpu
	TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python examples/digits/ask.py

test: env
	$(MAKE) --jobs=2 lint tests

# The same with the other line of TFX than this machine's: make test-line LINE=1.21
test-line:
	tests/line.sh $(LINE) make test

lint: env
	$(MAKE) --no-print-directory site
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# The documentation as a site, in site/. A broken link or a page that the navigation lacks
# fails it, but not with --quiet, which drops the warnings that --strict counts. The
# variable silences an advertisement.
site:
	@./bootstrap.sh publish
	NO_MKDOCS_2_WARNING=1 .venv-publish/bin/mkdocs build --strict

# The source archive, and the wheel that is built from it, in dist/.
dist:
	@./bootstrap.sh publish
	rm -rf dist *.egg-info  # setuptools would pack what an earlier one lists
	.venv-publish/bin/python -m build --no-isolation
	.venv-publish/bin/twine check --strict dist/*

# A wheel with a compiled library is for this machine: the package index takes the source.
release: dist
	.venv-publish/bin/twine upload dist/*.tar.gz

tests: env
	$(PYTEST)

unit: env
	$(PYTEST) -m "not e2e"

# Other files would be imported by each process for nothing.
e2e: env
	$(PYTEST) -m e2e $$(grep -rl "mark.e2e" tests --include="test_*.py")

# Needs a Kubernetes cluster with the Training Operator, JobSet and Kueue, named by
# KUBECONFIG, and the image of the digits in it: CONTRIBUTING.md.
cluster-test: env
	IMAGE=$(IMAGE) .venv/bin/pytest -q -m cluster --tx "5*$(FORK)" --dist loadfile --no-loadscope-reorder --durations=10 tests/cluster

# Compares a GPU with the CPU; `REHEARSE=--rehearse` uses the CPU in its place. Needs a
# Python with TensorFlow and this package, not TFX.
gpu-test:
	$(PYTHON) -m pytest -v -s -m gpu --confcutdir tests/gpu $(REHEARSE) tests/gpu

bench: env
	.venv/bin/python benchmarks/pipeline_time.py
	.venv/bin/python benchmarks/training_speed.py
	.venv/bin/python benchmarks/strategies.py
	.venv/bin/python benchmarks/epoch.py
	.venv/bin/python benchmarks/data.py
	.venv/bin/python benchmarks/wide_transform.py
	.venv/bin/python benchmarks/recovery.py
	.venv/bin/python benchmarks/time_measurement.py

# Needs a GPU, and the Python of gpu-test; takes four minutes. Writes benchmarks/gpu.json:
# then run make generated, and commit the results.
gpu-bench:
	$(PYTHON) benchmarks/gpu.py $(REHEARSE)

# Injects thirty random faults into real clusters, one after the other.
soak: env
	.venv/bin/python tests/soak.py

# Trains every kind of model under every strategy, which takes most of an hour, and
# writes docs/models.md; commit the result.
models: env
	.venv/bin/python tests/fakes/oracle.py --keras 2 --limit 3600 --update
	.venv/bin/python tests/fakes/oracle.py --keras 3 --limit 3600 --update

# Updates all locked versions; commit the result. TFX 1.16 has packages for one Python.
LOCK = PATH="$(CURDIR)/.venv-tools/bin:$$PATH" uv pip compile --quiet --upgrade --generate-hashes --python-version 3.10 \
	--custom-compile-command "make lock"
lock: env
	for line in 1.16 1.21; do \
		cd lines/$$line; \
		every=$$([ $$line = 1.16 ] || echo --universal); \
		$(LOCK) $$every --extra kfp --extra vertex --extra test ../../setup.py tfx.in -o packages.lock || exit 1; \
		for kind in cpu gpu; do \
			$(LOCK) $$every --constraint packages.lock --override ../image.in --override image-$$kind.in \
				../../setup.py tfx.in ../image.in image-$$kind.in -o image-$$kind.lock || exit 1; \
		done; \
		cd ../..; \
	done
	$(LOCK) --universal tests/kfp.in -o tests/kfp.lock
	$(LOCK) --universal docs/publish.in -o docs/publish.lock

# The reference of pipeline parameters, and what editors read; commit the result.
generated: env
	.venv/bin/python docs/generate.py
