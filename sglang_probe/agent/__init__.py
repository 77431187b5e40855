"""The part that lives inside SGLang's processes. It may not raise into them, and it imports late."""
