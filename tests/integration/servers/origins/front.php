<?php
// Two front controllers, whose routes tell what they are given: Symfony's routing, and FastRoute as Slim has it.

require_once 'Symfony/Component/HttpFoundation/autoload.php';
require_once 'Symfony/Component/Routing/autoload.php';
require_once 'FastRoute/autoload.php';

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\Routing\Exception\ResourceNotFoundException;
use Symfony\Component\Routing\Matcher\UrlMatcher;
use Symfony\Component\Routing\RequestContext;
use Symfony\Component\Routing\Route;
use Symfony\Component\Routing\RouteCollection;

const PATHS = ['root' => '/', 'admin' => '/admin', 'one' => '/{a}', 'two' => '/{a}/{b}', 'three' => '/{a}/{b}/{c}'];

function by_symfony(): array
{
    $request = Request::createFromGlobals();
    $routes = new RouteCollection();
    foreach (PATHS as $name => $path) {
        $routes->add($name, new Route($path));
    }
    $routes->add('rest', new Route('/{rest}', [], ['rest' => '.*']));
    $context = new RequestContext();
    $context->fromRequest($request);
    try {
        return (new UrlMatcher($routes, $context))->matchRequest($request);
    } catch (ResourceNotFoundException) {
        return [];
    }
}

function by_fast_route(): array
{
    $dispatcher = FastRoute\simpleDispatcher(function (FastRoute\RouteCollector $routes): void {
        foreach (PATHS as $name => $path) {
            $routes->addRoute('GET', $path, $name);
        }
        $routes->addRoute('GET', '/{rest:.*}', 'rest');
    });
    $path = rawurldecode(explode('?', $_SERVER['REQUEST_URI'], 2)[0]);
    return $dispatcher->dispatch('GET', $path);
}

header('Content-Type: text/plain');
$told = [$_SERVER['FRONT'] === 'symfony' ? by_symfony() : by_fast_route(), $_GET];
$body = bin2hex(serialize($told));
header('Content-Length: ' . strlen($body));
echo $body;
