"""What cells are measured by: drawn pictures, held-out loss, judges that a plan names, points on the way, previews."""
