"""All verbs of ``gpuyard serve``, from the files that declare them."""

from gpuyard.cli.serving import asked, verbs

__all__ = ["asked", "serve_app"]

serve_app = verbs.serve_app
