# Everything sets itself up: `make demo` and `make test` need Python 3.11+, git, make and, as root, apt.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test test-slow check bench screenshots lock clean
