"""Generated traffic of agent clients: see scripts/bench-traffic."""
