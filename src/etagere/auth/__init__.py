"""Who asks, and may they: signatures, tokens, and the table of what each operation needs.

Everything here is pure: the time, the keys and the stored policies are arguments, and bad
input is a refusal. A request passes in this order: `shared_key.verify`, or `sas_parsing.parse`,
`sas_signature.verify`, `sas.check_origin` and `sas.effective`; either makes a `Principal`, of
which `permissions.authorize` says what it may do.
"""
