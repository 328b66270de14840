"""Tasks that follow objects through videos."""
