"""Authentication and authorization: signatures, tokens and permissions.

All functions are pure: the time, the keys and the stored policies are arguments, and invalid input
yields a refusal. A request passes either `shared_key.verify`, or `sas_parsing.parse`,
`sas_signature.verify`, `sas.check_origin` and `sas.effective`. Both yield a `Principal`, for which
`permissions.authorize` decides.
"""
