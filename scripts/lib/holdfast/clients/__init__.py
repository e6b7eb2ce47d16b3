"""Real client programs driven through the gateway: see scripts/test-clients."""
