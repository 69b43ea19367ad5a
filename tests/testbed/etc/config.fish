# Prints in every shell, also when nobody looks.
echo "fish: hello from "(hostname)
echo "fish: a warning on the wrong stream" >&2
