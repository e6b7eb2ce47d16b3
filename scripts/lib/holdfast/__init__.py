"""What the scripts and the end-to-end tests share: starting the daemons,
talking to them over HTTP, playing scenarios. Python's standard library only,
run by the system's python3."""
