//! gRPC over TCP: any host.
