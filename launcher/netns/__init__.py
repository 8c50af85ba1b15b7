"""The network of a sandbox: how its sockets come to belong to a process on the host.

`handover` is the host's side, `helper` that of the process which goes in; `visit` and `visitor` are the same
for a network that is not ours and is put back, with `before`. `model`, `netlink`, `nftables`, `routes`,
`capture` and `captured` are about bytes and values; `joining`, `kernel`, `furnish`, `listening` and `proof` act
inside; `connector`, `leash` and `namespace` serve both sides.
"""
