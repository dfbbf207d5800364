"""`strop doctor`: what stands, what is missing, why it matters and how to mend it. Also where nothing runs yet."""
