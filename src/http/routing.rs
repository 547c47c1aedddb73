//! Routes whose handlers the compiler sees once.
//!
//! axum wraps a handler into some ten services, one in another. For each of them the compiler proves anew that the handler's
//! future may be sent between threads, by a walk through every future in it: for two hundred handlers this was a fifth of the
//! time that this crate takes to compile. Behind a pointer the handler's type ends here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{self, MethodFilter, MethodRouter};

use super::Api;

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler without its type.
#[derive(Clone)]
struct Pointed(Arc<dyn Fn(Request, Api) -> Answer + Send + Sync>);

impl Pointed {
    fn new<H: Handler<T, Api>, T: 'static>(handler: H) -> Self {
        Self(Arc::new(move |request, api| Box::pin(handler.clone().call(request, api))))
    }
}

impl Handler<Pointed, Api> for Pointed {
    type Future = Answer;

    fn call(self, request: Request, api: Api) -> Answer {
        (self.0)(request, api)
    }
}

pub(crate) fn on<H: Handler<T, Api>, T: 'static>(
    methods: MethodFilter,
    handler: H,
) -> MethodRouter<Api> {
    routing::on(methods, Pointed::new(handler))
}

pub(crate) fn any<H: Handler<T, Api>, T: 'static>(handler: H) -> MethodRouter<Api> {
    routing::any(Pointed::new(handler))
}

pub(crate) fn get<H: Handler<T, Api>, T: 'static>(handler: H) -> MethodRouter<Api> {
    routing::get(Pointed::new(handler))
}

pub(crate) fn post<H: Handler<T, Api>, T: 'static>(handler: H) -> MethodRouter<Api> {
    routing::post(Pointed::new(handler))
}

pub(crate) fn put<H: Handler<T, Api>, T: 'static>(handler: H) -> MethodRouter<Api> {
    routing::put(Pointed::new(handler))
}
